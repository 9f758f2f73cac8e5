// SPDX-License-Identifier: Apache-2.0
// The bodies of the GPU's backward kernels, on simulated blocks, against the reference in double.
#include "kernels/cuda/gpu_gradients.hpp"
#include "kernels/support/sampling.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;
using cuda_detail::Operators;

namespace {

template <class V>
void check_all_backward() {
  const Sampling sampling(1);
  int number = 0;
  for (const std::int64_t width : {7, 100, 104, 1000}) {
    for (const int n : {1, 2, 3, 9, 17}) {
      const int readers = std::vector<int>{1, 2, 9}[static_cast<std::size_t>(number % 3)];
      if (sampling.takes(number++)) {
        check_backward<V>(width < 1000 ? 5 : 1, width, n, readers, number % 2 == 0 ? 1.0 : 8.0, false);
      }
    }
  }
  check_backward<V>(1, 2304, 3, 2, 2.0, false);
  check_backward<V>(3, 40, 3, 24, 2.0, false);
  if (sampling.takes(1)) {
    check_backward<V>(520, 24, 4, 3, 1.0, true);  // three runs of tokens
  }
}

template <class V>
void check_aggregate(int n, bool first_touch) {
  simt::Machine gpu;
  GpuWorkspace workspace;
  check_aggregate_backward<V>(8, 72, n, first_touch,
                              [&](const DepthProblem& problem, const AggregateBackward& operands, std::size_t count) {
                                Operators<V>::aggregate_backward(gpu, problem, operands, workspace(problem, count, 1));
                              });
}

}  // namespace

TEST_CASE("backward kernels of the GPU keep their bounds in fp32", "[gpu]") { check_all_backward<float>(); }
TEST_CASE("backward kernels of the GPU keep their bounds in bf16", "[gpu]") { check_all_backward<Bf16>(); }
TEST_CASE("backward kernels of the GPU keep their bounds in fp16", "[gpu]") { check_all_backward<Fp16>(); }

TEST_CASE("on the GPU the backward of an aggregate adds to its accumulators or overwrites them", "[gpu]") {
  for (const int n : {1, 2, 5}) {
    for (const bool first_touch : {false, true}) {
      check_aggregate<float>(n, first_touch);
      check_aggregate<Bf16>(n, first_touch);
      check_aggregate<Fp16>(n, first_touch);
    }
  }
}

TEST_CASE("on the GPU gradients have the same bits in every order of threads", "[gpu]") {
  const CpuCase<Bf16> in(3, 264, 4, 9, 2.0);
  const Gradients<float> base = on_gpu(in);
  for (const simt::Order order : {simt::Order::descending, simt::Order::shuffled}) {
    const Gradients<float> other = on_gpu(in, order);
    CHECK(other.sources == base.sources);
    CHECK(other.partials == base.partials);
    CHECK(other.queries == base.queries);
  }
}

TEST_CASE("on the GPU gradients of sources have the same bits wherever their token lies and however rows are aligned",
          "[gpu]") {
  const CpuCase<Bf16> in(7, 136, 3, 1, 2.0);
  const auto run = [&](const CpuCase<Bf16>& of, std::int64_t from, std::int64_t tokens, std::size_t shift) {
    DepthProblem problem = of.problem;
    problem.tokens = tokens;
    const auto width = static_cast<std::size_t>(problem.width);
    const auto size = static_cast<std::size_t>(tokens) * width;
    const auto begin = static_cast<std::size_t>(from) * width;
    Rows<float> gradients = poison<float>(static_cast<std::int64_t>(3 * (size + shift)));
    std::vector<DepthSourceGradient> all;
    for (std::size_t i = 0; i < 3; ++i) {
      all.push_back({{of.sources[i].data() + begin, of.scales[i].data() + from},
                     gradients.data() + i * (size + shift) + shift,
                     true});
    }
    Rows<float> sums = zeros<float>(problem.width);
    simt::Machine gpu;
    GpuWorkspace workspace;
    Operators<Bf16>::aggregate_backward(
        gpu, problem, {all, of.queries[0].data(), of.grads[0].data() + begin, sums.data()}, workspace(problem, 3, 1));
    Rows<float> out;
    for (std::size_t i = 0; i < 3; ++i) {
      const float* row = static_cast<const float*>(all[i].gradient);
      out.insert(out.end(), row, row + size);
    }
    return std::pair{out, sums};
  };
  const auto whole = run(in, 0, 7, 0);
  const auto shifted = run(in, 0, 7, 1);  // gradients off the 16-byte grid
  CHECK(same_rows(shifted.first, whole.first));
  CHECK(same_rows(shifted.second, whole.second));
  const auto part = run(in, 4, 2, 0);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(same_bytes(part.first.data() + i * 2 * 136, whole.first.data() + (i * 7 + 4) * 136, 2 * 136 * sizeof(float)));
  }
}

TEST_CASE("on the GPU a sole source takes the whole gradient and leaves the query none, bit for bit", "[gpu]") {
  CpuCase<Bf16> in(5, 40, 1, 2, 4.0);
  in.sources[0][3] = to_bf16(std::numeric_limits<float>::infinity());  // must not matter
  in.rescale();
  const DepthSource source = in.list()[0];
  simt::Machine gpu;
  GpuWorkspace workspace;
  Rows<float> gradient = poison<float>(5 * 40);
  const DepthSourceGradient own{source, gradient.data(), true};
  const std::vector<InterBlockReader> readers = {
      {in.queries[0].data(), in.grads[0].data(), nullptr, nullptr, nullptr, true}};
  Operators<Bf16>::inter_block_backward(gpu, in.problem, {{&own, 1}, readers}, workspace(in.problem, 1, 1));
  CHECK(same_rows(gradient, in.grads[0]));

  // As the merge of nothing: the partial's share is G.
  Rows<float> sums = zeros<float>(40);
  Rows<float> partial = zeros<float>(5 * 40);
  Rows<float> delta = poison<float>(5);
  const Rows<float> lse = zeros<float>(5);
  Operators<Bf16>::merge_backward(gpu, in.problem,
                                  {nullptr,
                                   nullptr,
                                   {&source, 1},
                                   in.queries[0].data(),
                                   in.grads[0].data(),
                                   lse.data(),
                                   delta.data(),
                                   partial.data(),
                                   sums.data()},
                                  workspace(in.problem, 1, 1));
  CHECK(same_rows(partial, in.grads[0]));
  CHECK(same_rows(sums, zeros<float>(40)));
}

TEST_CASE("on the GPU readers of a sole source mix with others and delta is written without later sources", "[gpu]") {
  const CpuCase<float> in(4, 40, 1, 2, 2.0);
  const WideCase wide(in);
  const auto list = in.list();
  const auto wide_list = wide.list(1);
  simt::Machine gpu;
  GpuWorkspace workspace;
  // delta of a mixture alone is G . o.
  Rows<float> lse = zeros<float>(4);
  Rows<float> delta = poison<float>(4);
  const Rows<float> mixture = random_rows<float>("mixture", 4 * 40);
  Operators<float>::merge_backward(gpu, in.problem,
                                   {mixture.data(),
                                    lse.data(),
                                    {},
                                    in.queries[0].data(),
                                    in.grads[0].data(),
                                    lse.data(),
                                    delta.data(),
                                    nullptr,
                                    nullptr},
                                   workspace(in.problem, 1, 1));
  for (std::size_t t = 0; t < 4; ++t) {
    double expected = 0;
    for (std::size_t j = 0; j < 40; ++j) {
      expected += static_cast<double>(mixture[t * 40 + j]) * static_cast<double>(in.grads[0][t * 40 + j]);
    }
    CHECK(static_cast<double>(delta[t]) == Approx(expected).epsilon(1e-5));
  }
  // The second reader saw something besides: lse and delta are not those of the sole source.
  lse.assign(4, 1.5f);
  delta.assign(4, -0.5f);
  const Rows<double> wide_lse = convert<double>(lse);
  const Rows<double> wide_delta = convert<double>(delta);
  Rows<float> got = poison<float>(4 * 40);
  Rows<double> expected = poison<double>(4 * 40);
  Rows<float> sums = zeros<float>(40);
  Rows<double> wide_sums = zeros<double>(40);
  const DepthSourceGradient own{list[0], got.data(), true};
  const DepthSourceGradient wide_own{wide_list[0], expected.data(), true};
  const std::vector<InterBlockReader> readers = {
      {in.queries[0].data(), in.grads[0].data(), nullptr, nullptr, nullptr, true},
      {in.queries[1].data(), in.grads[1].data(), lse.data(), delta.data(), sums.data(), false}};
  const std::vector<InterBlockReader> wide_readers = {
      {wide.queries[0].data(), wide.grads[0].data(), nullptr, nullptr, nullptr, true},
      {wide.queries[1].data(), wide.grads[1].data(), wide_lse.data(), wide_delta.data(), wide_sums.data(), false}};
  Operators<float>::inter_block_backward(gpu, in.problem, {{&own, 1}, readers}, workspace(in.problem, 1, 2));
  inter_block_backward(wide.problem, {{&wide_own, 1}, wide_readers});
  CHECK(relative_l2(got, expected) <= 1e-5);
  CHECK(relative_l2(sums, wide_sums) <= 1e-5);
}
