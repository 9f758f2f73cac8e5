// SPDX-License-Identifier: Apache-2.0
// gpu_measure: time of each GPU operator at one shape in bf16, the bytes it has to move, and its share of a plain
// copy's bandwidth in the same process. One JSON object on standard output.
#include <cstdio>
#include <cstdlib>

#include "gpu_device.hpp"
#include "plumb/kernels/counter_rng.hpp"
#include "plumb/kernels/cuda_operators.hpp"
#include "plumb/kernels/number_formats.hpp"

using namespace plumb;
using plumb::bench::milliseconds;
using plumb::bench::OnGpu;
using plumb::bench::require;
using plumb::bench::Stream;

namespace {

constexpr int kTimes = 20;

// A million numbers, repeated: contents only have to be ordinary.
template <class T, class Narrow>
OnGpu<T> ordinary(std::size_t size, const std::string& name, double scale, const Narrow& narrow) {
  std::vector<float> some(std::min<std::size_t>(size, std::size_t{1} << 20));
  fill_normal(CounterRng(3, name), 0.0, scale, std::span<float>(some));
  std::vector<T> rows(size);
  for (std::size_t k = 0; k < size; ++k) {
    rows[k] = narrow(some[k % some.size()]);
  }
  return OnGpu<T>(rows);
}
OnGpu<Bf16> values(std::size_t size, const std::string& name) {
  return ordinary<Bf16>(size, name, 1.0, [](float x) { return to_bf16(x); });
}
OnGpu<float> floats(std::size_t size, const std::string& name, double scale) {
  return ordinary<float>(size, name, scale, [](float x) { return x; });
}

class Report {
 public:
  explicit Report(double copy_bytes_per_ms) : copy_(copy_bytes_per_ms) {}
  void row(const char* name, double bytes, double ms) {
    std::printf("%s\n    {\"operator\": \"%s\", \"bytes\": %.0f, \"ms\": %.4f, \"gb_per_s\": %.1f, \"of_copy\": %.3f}",
                first_ ? "" : ",", name, bytes, ms, bytes / ms / 1e6, bytes / ms / copy_);
    first_ = false;
  }

 private:
  double copy_;
  bool first_ = true;
};

void measure(std::int64_t tokens, std::int64_t width, int n, int readers) {
  const DepthProblem problem{tokens, width, Storage::bf16, 1e-6};
  const auto size = static_cast<std::size_t>(tokens * width);
  const auto columns = static_cast<std::size_t>(width);
  const auto rows = static_cast<std::size_t>(tokens);
  const double d2 = 2.0 * static_cast<double>(size);  // bytes of a tensor in bf16
  const double d4 = 2 * d2;
  const double t4 = 4.0 * static_cast<double>(rows);
  Stream stream;
  const OnGpu<std::byte> memory(cuda::workspace_bytes(problem, n + 1, readers));
  const cuda::Execution execution{memory.data(), memory.size_bytes(), stream.get()};

  const OnGpu<std::byte> from(std::size_t{1} << 30);
  const OnGpu<std::byte> to(std::size_t{1} << 30);
  const double copy_ms = milliseconds(stream, kTimes, [&] {
    require(cudaMemcpyAsync(to.data(), from.data(), from.size_bytes(), cudaMemcpyDeviceToDevice, stream.get()),
            "cudaMemcpyAsync");
  });
  const double copy = 2.0 * static_cast<double>(from.size_bytes()) / copy_ms;
  std::printf("{\n  \"tokens\": %lld, \"width\": %lld, \"sources\": %d, \"queries\": %d, \"storage\": \"bf16\",\n",
              static_cast<long long>(tokens), static_cast<long long>(width), n, readers);
  std::printf("  \"copy_gb_per_s\": %.1f,\n  \"operators\": [", copy / 1e6);
  Report report(copy);

  std::vector<OnGpu<Bf16>> source;
  std::vector<OnGpu<float>> scale;
  std::vector<OnGpu<float>> gradient;
  std::vector<DepthSource> sources;
  std::vector<DepthSourceGradient> gradients;
  for (int i = 0; i < n; ++i) {
    source.push_back(values(size, "source " + std::to_string(i)));
    scale.emplace_back(rows);
    gradient.emplace_back(size);
    cuda::inverse_rms(problem, source.back().data(), scale.back().data(), execution);
    sources.push_back({source.back().data(), scale.back().data()});
    gradients.push_back({sources.back(), gradient.back().data(), true});
  }
  std::vector<OnGpu<float>> query;
  std::vector<OnGpu<float>> grad;
  std::vector<OnGpu<Bf16>> o;
  std::vector<OnGpu<float>> lse;
  std::vector<OnGpu<float>> delta;
  std::vector<OnGpu<float>> sums;
  std::vector<PhaseOneQuery> queries;
  std::vector<InterBlockReader> all;
  for (int l = 0; l < readers; ++l) {
    query.push_back(floats(columns, "query " + std::to_string(l), 0.02));
    grad.push_back(floats(size, "grad " + std::to_string(l), 1.0));
    o.emplace_back(size);
    lse.emplace_back(rows);
    delta.emplace_back(rows);
    delta.back().clear();
    sums.emplace_back(static_cast<std::size_t>(num_token_runs(tokens)) * columns);
    sums.back().clear();
    queries.push_back({query.back().data(), o.back().data(), lse.back().data()});
    all.push_back(
        {query.back().data(), grad.back().data(), lse.back().data(), delta.back().data(), sums.back().data(), false});
  }
  const double r = readers;
  report.row("phase_one_forward", n * d2 + r * (d2 + t4), milliseconds(stream, kTimes, [&] {
               cuda::phase_one_forward(problem, {sources, queries}, execution);
             }));
  cuda::Execution tensor = execution;
  tensor.tensor_cores = true;
  report.row("phase_one_forward on tensor cores", n * d2 + r * (d2 + t4), milliseconds(stream, kTimes, [&] {
               cuda::phase_one_forward(problem, {sources, queries}, tensor);
             }));
  const OnGpu<Bf16> h(size);
  const OnGpu<float> lse_h(rows);
  report.row("aggregate_forward", (n + 1) * d2 + t4, milliseconds(stream, kTimes, [&] {
               cuda::aggregate_forward(problem, {sources, query[0].data(), h.data(), lse_h.data()}, execution);
             }));
  const OnGpu<Bf16> partial = values(size, "partial");
  const OnGpu<Bf16> output = values(size, "output");
  const OnGpu<Bf16> sum(size);
  const OnGpu<float> gain = floats(columns, "gain", 1.0);
  const DepthSource later{partial.data(), nullptr};
  MergeForward merge{o[0].data(), lse[0].data(), {&later, 1}, query[0].data(), h.data(), lse_h.data()};
  merge.output = output.data();
  merge.partial_out = sum.data();
  merge.norm = {gain.data(), 1e-6};
  report.row("merge_forward with output and norm", 5 * d2 + 2 * t4,
             milliseconds(stream, kTimes, [&] { cuda::merge_forward(problem, merge, execution); }));

  OnGpu<float> grad_partial(size);
  grad_partial.clear();
  const OnGpu<float> mixture = floats(size, "mixture", 1.0);
  const MergeBackward back{mixture.data(), lse[0].data(),   {&later, 1},         query[0].data(), grad[0].data(),
                           lse_h.data(),   delta[0].data(), grad_partial.data(), sums[0].data()};
  report.row("merge_backward", 4 * d4 + d2,
             milliseconds(stream, kTimes, [&] { cuda::merge_backward(problem, back, execution); }));
  report.row("inter_block_backward", n * (d2 + d4) + r * d4, milliseconds(stream, kTimes, [&] {
               cuda::inter_block_backward(problem, {gradients, all}, execution);
             }));
  report.row("inter_block_backward on tensor cores", n * (d2 + d4) + r * d4, milliseconds(stream, kTimes, [&] {
               cuda::inter_block_backward(problem, {gradients, all}, tensor);
             }));
  report.row(
      "aggregate_backward", n * (d2 + d4) + d4, milliseconds(stream, kTimes, [&] {
        cuda::aggregate_backward(problem, {gradients, query[0].data(), grad[0].data(), sums[0].data()}, execution);
      }));
  std::printf("\n  ]\n}\n");
}

}  // namespace

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "gpu_measure: not run: no GPU\n");
    return 77;
  }
  try {
    measure(argc > 1 ? std::atoll(argv[1]) : 8192, argc > 2 ? std::atoll(argv[2]) : 7168,
            argc > 3 ? std::atoi(argv[3]) : 9, argc > 4 ? std::atoi(argv[4]) : 8);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_measure: ended by: %s\n", error.what());
    return 1;
  }
  return 0;
}
