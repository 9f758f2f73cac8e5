// SPDX-License-Identifier: Apache-2.0
// gpu_check: the GPU operators, on the GPU, against double arithmetic on the CPU; the same bits twice, and through a
// graph.
#include <cmath>
#include <cstdio>

#include "gpu_device.hpp"
#include "kernels/support/cpu_case.hpp"
#include "plumb/kernels/cuda_operators.hpp"

using namespace plumb;
using namespace plumb::testing;
using plumb::bench::OnGpu;
using plumb::bench::require;
using plumb::bench::Stream;

namespace {

int num_failed = 0;
int num_checks = 0;

void expect(bool good, const std::string& what, double got, double bound) {
  ++num_checks;
  if (!good) {
    ++num_failed;
    std::printf("FAILED %s: %.3g, bound %.3g\n", what.c_str(), got, bound);
  }
}
void within(double got, double bound, const std::string& what) { expect(got <= bound, what, got, bound); }

template <class V>
constexpr double kRounded = std::is_same_v<V, float>  ? 3e-6
                            : std::is_same_v<V, Bf16> ? 2.0e-3
                                                      : 2.5e-4;

template <class T>
std::vector<OnGpu<T>> upload(const std::vector<Rows<T>>& rows) {
  std::vector<OnGpu<T>> out;
  for (const Rows<T>& each : rows) {
    out.emplace_back(each);
  }
  return out;
}

/// The same operators on tensor cores, where there is a variant for this case; as without elsewhere.
template <class V>
void check_tensor_cores(const std::string& name, const CpuCase<V>& in, const WideCase& wide,
                        const std::vector<DepthSource>& sources, const std::vector<OnGpu<float>>& queries,
                        const std::vector<InterBlockReader>& readers, const std::vector<Rows<double>>& dv,
                        cuda::Execution execution) {
  const auto size = static_cast<std::size_t>(in.problem.tokens * in.problem.width);
  const auto statistics = static_cast<std::size_t>(in.problem.tokens);
  execution.tensor_cores = true;
  std::vector<OnGpu<V>> o;
  std::vector<OnGpu<float>> lse;
  std::vector<PhaseOneQuery> all;
  for (const OnGpu<float>& query : queries) {
    o.emplace_back(size);
    lse.emplace_back(statistics);
    all.push_back({query.data(), o.back().data(), lse.back().data()});
  }
  std::vector<OnGpu<float>> got;
  std::vector<DepthSourceGradient> gradients;
  for (const DepthSource& source : sources) {
    got.emplace_back(size);
    gradients.push_back({source, got.back().data(), true});
  }
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  cuda::phase_one_forward(in.problem, {sources, all}, execution);
  cuda::inter_block_backward(in.problem, {gradients, readers}, execution);
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const auto closed = wide.list(sources.size());
  for (std::size_t l = 0; l < o.size(); ++l) {
    Rows<double> expected = zeros<double>(in.problem.tokens * in.problem.width);
    aggregate_forward(wide.problem, {closed, wide.queries[l].data(), expected.data(), nullptr});
    within(relative_l2(to_double(o[l].rows()), expected), 1.2 * kRounded<V>,
           name + " tensor cores, query " + std::to_string(l));
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    within(relative_l2(got[i].rows(), dv[i]), 1e-5, name + " tensor cores, gradient of source " + std::to_string(i));
  }
}

template <class V>
void check_case(std::int64_t tokens, std::int64_t width, int n, int readers) {
  const std::string name = std::string(to_string(kFormat<V>)) + " T=" + std::to_string(tokens) +
                           " d=" + std::to_string(width) + " n=" + std::to_string(n) + " S=" + std::to_string(readers);
  const CpuCase<V> in(tokens, width, n, readers, 2.0);
  const WideCase wide(in);
  const DepthProblem& problem = in.problem;
  const auto size = static_cast<std::size_t>(tokens * width);
  const auto columns = static_cast<std::size_t>(width);
  const auto statistics = static_cast<std::size_t>(tokens);
  const auto count = static_cast<std::size_t>(n);
  Stream stream;
  const OnGpu<std::byte> memory(cuda::workspace_bytes(problem, n + 1, readers));
  const cuda::Execution execution{memory.data(), memory.size_bytes(), stream.get()};

  const auto values = upload(in.sources);
  const auto queries = upload(in.queries);
  const auto grads = upload(in.grads);
  const OnGpu<V> partial(in.partial);
  std::vector<OnGpu<float>> scales;
  std::vector<DepthSource> sources;
  for (std::size_t i = 0; i < count; ++i) {
    scales.emplace_back(statistics);
    cuda::inverse_rms(problem, values[i].data(), scales[i].data(), execution);
    sources.push_back({values[i].data(), scales[i].data()});
  }
  std::vector<OnGpu<float>> o;
  std::vector<OnGpu<float>> lse_o;
  std::vector<PhaseOneQuery> all;
  for (std::size_t l = 0; l < queries.size(); ++l) {
    o.emplace_back(size);
    lse_o.emplace_back(statistics);
    all.push_back({queries[l].data(), o[l].data(), lse_o[l].data()});
  }
  const PhaseOneForward phase_one{sources, all, true};
  cuda::phase_one_forward(problem, phase_one, execution);
  stream.wait();
  const Rows<float> once = o[0].rows();

  // The same through a graph, into poisoned memory.
  require(cudaMemset(o[0].data(), 0xff, o[0].size_bytes()), "cudaMemset");
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  require(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cuda::phase_one_forward(problem, phase_one, execution);
  require(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
  require(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  require(cudaGraphLaunch(executable, stream.get()), "cudaGraphLaunch");
  stream.wait();
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  expect(same_rows(once, o[0].rows()), name + " same bits through a graph", 1, 0);

  std::vector<OnGpu<float>> lse;
  std::vector<OnGpu<float>> delta;
  std::vector<OnGpu<float>> partials;
  std::vector<OnGpu<float>> sums;
  std::vector<InterBlockReader> all_readers;
  std::vector<Rows<double>> dv(count, zeros<double>(tokens * width));
  const DepthSource later{partial.data(), nullptr};
  const auto wide_list = wide.list(count + 1);
  const OnGpu<V> h(size);
  const OnGpu<float> ones(Rows<float>(columns, 1.0f));
  for (std::size_t l = 0; l < queries.size(); ++l) {
    const std::string at = name + " query " + std::to_string(l);
    lse.emplace_back(statistics);
    delta.emplace_back(statistics);
    partials.emplace_back(size);
    sums.emplace_back(static_cast<std::size_t>(num_token_runs(tokens)) * columns);
    partials[l].clear();
    sums[l].clear();
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    MergeForward merge{o[l].data(), lse_o[l].data(), {&later, 1}, queries[l].data(), h.data(), lse[l].data()};
    merge.fp32_mixture = true;
    cuda::merge_forward(problem, merge, execution);
    cuda::merge_backward(problem,
                         {o[l].data(),
                          lse_o[l].data(),
                          {&later, 1},
                          queries[l].data(),
                          grads[l].data(),
                          lse[l].data(),
                          delta[l].data(),
                          partials[l].data(),
                          sums[l].data()},
                         execution);
    all_readers.push_back({queries[l].data(), grads[l].data(), lse[l].data(), delta[l].data(), sums[l].data(), false});
    stream.wait();
    Rows<double> expected = zeros<double>(tokens * width);
    aggregate_forward(wide.problem, {wide_list, wide.queries[l].data(), expected.data(), nullptr});
    within(relative_l2(to_double(h.rows()), expected), 1.2 * kRounded<V>, at + " merge");
    Rows<double> dp = zeros<double>(tokens * width);
    Rows<double> wide_sums = zeros<double>(num_token_runs(tokens) * width);
    std::vector<DepthSourceGradient> gradients;
    for (std::size_t i = 0; i <= count; ++i) {
      gradients.push_back({wide_list[i], i < count ? dv[i].data() : dp.data(), false});
    }
    aggregate_backward(wide.problem, {gradients, wide.queries[l].data(), wide.grads[l].data(), wide_sums.data()});
    within(relative_l2(partials[l].rows(), dp), 1e-5, at + " merge backward");
  }
  std::vector<Rows<float>> first;
  for (int time = 0; time < 2; ++time) {
    std::vector<OnGpu<float>> got;
    std::vector<DepthSourceGradient> gradients;
    for (std::size_t i = 0; i < count; ++i) {
      got.emplace_back(size);
      gradients.push_back({sources[i], got[i].data(), true});
    }
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    cuda::inter_block_backward(problem, {gradients, all_readers}, execution);
    stream.wait();
    for (std::size_t i = 0; i < count; ++i) {
      const Rows<float> rows = got[i].rows();
      if (time == 0) {
        within(relative_l2(rows, dv[i]), 1e-5, name + " gradient of source " + std::to_string(i));
        first.push_back(rows);
      } else {
        expect(same_rows(rows, first[i]), name + " same bits twice", 1, 0);
      }
    }
  }
  if constexpr (sizeof(V) == 2) {
    check_tensor_cores<V>(name, in, wide, sources, queries, all_readers, dv, execution);
  }
  OnGpu<V> direct(size);
  const OnGpu<float> lse_direct(statistics);
  cuda::aggregate_forward(problem, {sources, queries[0].data(), direct.data(), lse_direct.data()}, execution);
  stream.wait();
  Rows<double> expected = zeros<double>(tokens * width);
  const auto closed = wide.list(count);
  aggregate_forward(wide.problem, {closed, wide.queries[0].data(), expected.data(), nullptr});
  within(relative_l2(to_double(direct.rows()), expected), 1.2 * kRounded<V>, name + " aggregate");
}

template <class V>
void check_all() {
  int number = 0;
  for (const std::int64_t width : {100, 1000, 2304, 4096, 7168}) {
    for (const int n : {1, 2, 3, 8, 9, 16, 17}) {
      const int readers = std::vector<int>{1, 2, 6, 9}[static_cast<std::size_t>(number++ % 4)];
      check_case<V>(width < 1000 ? 300 : 4, width, n, readers);
    }
  }
}

void check_errors() {
  cuda::Execution bad;
  bad.stream = nullptr;
  const OnGpu<float> row(std::size_t{16});
  const OnGpu<float> out(std::size_t{1});
  try {
    cuda::inverse_rms({0, 16, Storage::fp32, 1e-6}, row.data(), out.data(), bad);
    expect(false, "no tokens are refused", 1, 0);
  } catch (const OperandError&) {
    expect(cudaGetLastError() == cudaSuccess, "a refused call leaves no error behind", 1, 0);
  }
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("gpu_check: not run: no GPU\n");
    return 77;
  }
  try {
    check_all<float>();
    check_all<Bf16>();
    check_all<Fp16>();
    check_errors();
  } catch (const std::exception& error) {
    std::printf("gpu_check: ended by: %s\n", error.what());
    return 1;
  }
  std::printf("gpu_check: %d of %d checks failed\n", num_failed, num_checks);
  return num_failed == 0 ? 0 : 1;
}
