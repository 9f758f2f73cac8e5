// SPDX-License-Identifier: Apache-2.0
// Kernels for tensor cores, on simulated blocks whose products cut off their sums, against double arithmetic.
#include "kernels/cuda/gpu_gradients.hpp"
#include "kernels/support/forward_bounds.hpp"
#include "kernels/support/sampling.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

template <class V>
Mixtures<V> mixed_on_tensor_cores(const DepthProblem& problem, const std::vector<DepthSource>& sources,
                                  const std::vector<Rows<float>>& queries, simt::Order order = simt::Order::ascending,
                                  int turn = 2) {
  GpuRun<V> run(order, true, turn);
  return Mixtures<V>(run, problem, sources, queries);
}
template <class V>
Mixtures<V> mixed_on_tensor_cores(const CpuCase<V>& in, simt::Order order = simt::Order::ascending, int turn = 2) {
  return mixed_on_tensor_cores<V>(in.problem, without_scales(in.list()), in.queries, order, turn);
}

template <class V>
void check_tensor_forward(std::int64_t tokens, std::int64_t width, int n, int queries, double query_norm,
                          bool known = false) {
  INFO(to_string(kFormat<V>) << ", tokens " << tokens << ", width " << width << ", sources " << n << ", queries "
                             << queries << ", |q| " << query_norm);
  const CpuCase<V> in(tokens, width, n, queries, query_norm);
  const WideCase wide(in);
  const Mixtures<V> got =
      mixed_on_tensor_cores<V>(in.problem, known ? in.list() : without_scales(in.list()), in.queries);
  CHECK(got.launches == (queries + 15) / 16);  // else tensor cores had no part in it
  const double sole = n == 1 ? 0.0 : 1.0;      // a sole source is copied
  for (std::size_t l = 0; l < got.o.size(); ++l) {
    const Expected expected(wide.problem, wide.list(static_cast<std::size_t>(n)), wide.queries[l]);
    check_mixture(got.o[l], expected, sole * kBounds<V>.mixture_l2, sole * kBounds<V>.rounding);
    check_lse(got.lse[l], expected);
  }
  for (std::size_t i = 0; i < got.scales.size(); ++i) {
    CHECK(relative_difference(got.scales[i], wide.scales[i]) <= 4 * kUlp);
  }
}

template <class V>
void check_all_tensor_forward() {
  const Sampling sampling(1);
  int number = 0;
  for (const int n : {1, 2, 3, 8, 9, 16}) {
    for (const std::int64_t width : {8, 104, 264}) {
      const int queries = std::vector<int>{1, 6, 16, 17}[static_cast<std::size_t>(number % 4)];
      if (sampling.takes(number++)) {
        check_tensor_forward<V>(3, width, n, queries, number % 2 == 0 ? 1.0 : 8.0, number % 3 == 0);
      }
    }
  }
  check_tensor_forward<V>(1, 2312, 3, 4, 8.0);   // a second slice of 264 columns
  check_tensor_forward<V>(2, 1000, 2, 2, 1e-4);  // numbers that fp16 does not have
}

}  // namespace

TEST_CASE("on tensor cores phase one keeps its bounds in bf16", "[gpu][tensor]") { check_all_tensor_forward<Bf16>(); }
TEST_CASE("on tensor cores phase one keeps its bounds in fp16", "[gpu][tensor]") { check_all_tensor_forward<Fp16>(); }

TEST_CASE("on tensor cores the batched backward keeps its bounds", "[gpu][tensor]") {
  check_backward<Bf16>(3, 104, 9, 9, 8.0, false, true);
  check_backward<Bf16>(1, 2312, 2, 2, 2.0, false, true);
  check_backward<Fp16>(3, 264, 3, 8, 1.0, false, true);
  if (Sampling(1).takes(1)) {
    check_backward<Bf16>(520, 24, 3, 3, 1.0, true, true);  // three runs of tokens
  }
}

TEST_CASE("on tensor cores gradients that fp16 could not hold keep their relative bounds", "[gpu][tensor]") {
  CpuCase<Fp16> in(3, 104, 4, 2, 2.0);
  for (Rows<float>& each : in.grads) {
    for (float& g : each) {
      g *= 1e-7f;
    }
  }
  const Exact expected{WideCase(in)};
  const Gradients<float> got = on_gpu(in, simt::Order::ascending, true);
  for (std::size_t i = 0; i < got.sources.size(); ++i) {
    CHECK(relative_l2(got.sources[i], expected.gradients.sources[i]) <= 1e-5);
  }
}

TEST_CASE("on tensor cores bits depend neither on the order of threads nor on a token's place", "[gpu][tensor]") {
  const CpuCase<Bf16> in(5, 264, 5, 3, 3.0);
  const Mixtures<Bf16> base = mixed_on_tensor_cores(in);
  for (const simt::Order order : {simt::Order::descending, simt::Order::shuffled}) {
    const Mixtures<Bf16> other = mixed_on_tensor_cores(in, order, 5);  // tokens in turn: more than the ring holds
    CHECK(other.lse == base.lse);
    CHECK(same_rows(other.o[2], base.o[2]));
  }
  DepthProblem problem = in.problem;
  problem.tokens = 2;
  std::vector<DepthSource> tail = in.list();
  for (std::size_t i = 0; i < tail.size(); ++i) {
    tail[i] = {in.sources[i].data() + 3 * 264, in.scales[i].data() + 3};
  }
  const Mixtures<Bf16> part =
      mixed_on_tensor_cores<Bf16>(problem, without_scales(tail), in.queries, simt::Order::ascending, 1);
  CHECK(same_bytes(part.o[1].data(), base.o[1].data() + 3 * 264, 2 * 264 * sizeof(Bf16)));
  const Gradients<float> once = on_gpu(in, simt::Order::ascending, true);
  const Gradients<float> again = on_gpu(in, simt::Order::shuffled, true, 5);
  CHECK(once.sources == again.sources);
  CHECK(once.queries == again.queries);
}

TEST_CASE("on tensor cores zero queries give the mean and what is not finite stays in its token", "[gpu][tensor]") {
  CpuCase<Bf16> in(3, 104, 4, 1, 0.0);
  const Mixtures<Bf16> mean = mixed_on_tensor_cores(in);
  for (std::size_t k = 0; k < mean.o[0].size(); ++k) {
    float sum = 0;
    for (const auto& each : in.sources) {
      sum = std::fma(0.25f, widened(each[k]), sum);
    }
    CHECK(std::abs(widened(mean.o[0][k]) - sum) <= 0x1p-8f * std::abs(sum) + 0x1p-20f);
  }
  in.sources[1][104 + 5] = to_bf16(std::numeric_limits<float>::quiet_NaN());
  in.sources[3][104 + 7] = to_bf16(std::numeric_limits<float>::infinity());
  in.rescale();
  const Mixtures<Bf16> spoilt = mixed_on_tensor_cores(in);
  CHECK(same_bytes(spoilt.o[0].data(), mean.o[0].data(), 104 * sizeof(Bf16)));
  CHECK(same_bytes(spoilt.o[0].data() + 208, mean.o[0].data() + 208, 104 * sizeof(Bf16)));
  CHECK(std::isnan(widened(spoilt.o[0][104])));
}

TEST_CASE("on tensor cores weights lose nothing where sources cancel", "[gpu][tensor]") {
  // b_1 = -5 b_0 and a query that gives them 5/6 and 1/6: the mixture is what the errors of the weights leave.
  CpuCase<Bf16> in(1, 104, 2, 1, 1.0);
  double squares = 0;
  for (std::size_t j = 0; j < 104; ++j) {
    const float v = static_cast<float>(static_cast<int>(j) % 7 - 3);
    in.sources[0][j] = to_bf16(v);
    in.sources[1][j] = to_bf16(-5 * v);
    squares += static_cast<double>(v) * static_cast<double>(v);
  }
  const double rms = std::sqrt(squares / 104);
  for (std::size_t j = 0; j < 104; ++j) {
    in.queries[0][j] = static_cast<float>(std::log(5.0) / 2 / 104 * widened(in.sources[0][j]) / rms);
  }
  in.rescale();
  const WideCase wide(in);
  const Expected expected(wide.problem, wide.list(2), wide.queries[0]);
  CHECK(*std::max_element(expected.h.begin(), expected.h.end()) < 1e-4);
  check_mixture(mixed_on_tensor_cores(in).o[0], expected, 1.0, kBounds<Bf16>.rounding);
}

TEST_CASE("tensor cores are left out where they cannot be used", "[gpu][tensor]") {
  const CpuCase<Bf16> many(2, 24, 17, 1, 1.0);  // sources
  CHECK(mixed_on_tensor_cores(many).launches == 1);
  const CpuCase<Bf16> odd(2, 23, 2, 9, 1.0);
  CHECK(mixed_on_tensor_cores(odd).launches == 4);
  const CpuCase<float> wide(2, 24, 2, 9, 1.0);
  CHECK(mixed_on_tensor_cores(wide).launches == 2);
}
