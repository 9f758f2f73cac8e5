// SPDX-License-Identifier: Apache-2.0
// Fast backward operators against the reference in double on the same stored inputs.
#include "kernels/support/cpu_case.hpp"
#include "kernels/support/exact_gradients.hpp"
#include "kernels/support/sampling.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

template <class V>
void check_backward(std::int64_t tokens, std::int64_t width, int n, int readers, double query_norm, bool many) {
  INFO(to_string(kFormat<V>) << ", tokens " << tokens << ", width " << width << ", sources " << n << ", readers "
                             << readers << ", |q| " << query_norm);
  const CpuCase<V> in(tokens, width, n, readers, query_norm);
  CpuRun fast;
  check_gradients(two_phase_gradients(in, fast), Exact(WideCase(in)), many);
}

template <class V>
void check_all_backward() {
  const Sampling sampling(1);
  int number = 0;
  for (const std::int64_t width : {100, 1000, 2304, 4096, 7168}) {
    for (const int n : {1, 2, 3, 8, 9, 16, 17}) {
      const int readers = std::vector<int>{1, 2, 6, 16, 24}[static_cast<std::size_t>(number % 5)];
      if (sampling.takes(number++)) {
        check_backward<V>(width <= 100 ? 40 : 5, width, n, readers, number % 2 == 0 ? 1.0 : 8.0, false);
      }
    }
  }
  check_backward<V>(300, 100, 8, 24, 2.0, true);
  check_backward<V>(520, 40, 9, 16, 1.0, true);  // three runs of tokens
}

template <class V>
void check_aggregate(int n, bool first_touch) {
  TestExecution execution;
  check_aggregate_backward<V>(270, 77, n, first_touch,
                              [&](const DepthProblem& problem, const AggregateBackward& operands, std::size_t count) {
                                cpu::aggregate_backward(problem, operands, execution(problem, count, 1));
                              });
}

}  // namespace

TEST_CASE("fast backward operators keep their bounds in fp32", "[kernels]") { check_all_backward<float>(); }
TEST_CASE("fast backward operators keep their bounds in bf16", "[kernels]") { check_all_backward<Bf16>(); }
TEST_CASE("fast backward operators keep their bounds in fp16", "[kernels]") { check_all_backward<Fp16>(); }

TEST_CASE("the fast backward of an aggregate adds to its accumulators or overwrites them", "[kernels]") {
  for (const int n : {1, 2, 5, 9}) {
    for (const bool first_touch : {false, true}) {
      check_aggregate<float>(n, first_touch);
      check_aggregate<Bf16>(n, first_touch);
      check_aggregate<Fp16>(n, first_touch);
    }
  }
}

TEST_CASE("a sole source takes the whole gradient and leaves the query none, bit for bit", "[kernels]") {
  const CpuCase<Bf16> in(300, 50, 1, 2, 4.0);
  const DepthSource source = in.list()[0];
  TestExecution execution;
  Rows<float> gradient = poison<float>(300 * 50);
  const DepthSourceGradient own{source, gradient.data(), true};
  const std::vector<InterBlockReader> readers = {
      {in.queries[0].data(), in.grads[0].data(), nullptr, nullptr, nullptr, true}};
  cpu::inter_block_backward(in.problem, {{&own, 1}, readers}, execution(in.problem, 1, 1));
  CHECK(same_rows(gradient, in.grads[0]));

  // Directly from one source, and as the merge of nothing: delta is G.v, the partial's share is G.
  Rows<float> sums = zeros<float>(2 * 50);
  Rows<float> partial = zeros<float>(300 * 50);
  Rows<float> delta = poison<float>(300);
  const Rows<float> lse = zeros<float>(300);
  cpu::merge_backward(in.problem,
                      {nullptr,
                       nullptr,
                       {&source, 1},
                       in.queries[0].data(),
                       in.grads[0].data(),
                       lse.data(),
                       delta.data(),
                       partial.data(),
                       sums.data()},
                      execution(in.problem, 1, 1));
  CHECK(same_rows(partial, in.grads[0]));
  CHECK(same_rows(sums, zeros<float>(2 * 50)));
}

TEST_CASE("a merge's backward without a mixture equals the one with it", "[kernels]") {
  const CpuCase<float> in(20, 96, 3, 1, 2.0);
  TestExecution execution;
  const auto list = in.list();
  std::vector<DepthSource> every = list;
  every.push_back({in.partial.data(), nullptr});
  const std::int64_t size = 20 * 96;
  Rows<float> o = poison<float>(size);
  Rows<float> lse_o = poison<float>(20);
  Rows<float> lse = poison<float>(20);
  const PhaseOneQuery one{in.queries[0].data(), o.data(), lse_o.data()};
  cpu::phase_one_forward(in.problem, {list, {&one, 1}}, execution(in.problem, 3, 1));
  cpu::aggregate_forward(in.problem, {every, in.queries[0].data(), nullptr, lse.data()}, execution(in.problem, 4, 1));
  const auto backward = [&](const float* mixture, const float* mixture_lse, std::span<const DepthSource> later) {
    std::vector<Rows<float>> out = {poison<float>(20), zeros<float>(size), zeros<float>(96)};
    cpu::merge_backward(in.problem,
                        {mixture, mixture_lse, later, in.queries[0].data(), in.grads[0].data(), lse.data(),
                         out[0].data(), out[1].data(), out[2].data()},
                        execution(in.problem, later.size(), 1));
    return out;
  };
  const std::span<const DepthSource> all = every;
  const auto with = backward(o.data(), lse_o.data(), all.last(1));
  const auto without = backward(nullptr, nullptr, all);
  for (std::size_t k = 0; k < 3; ++k) {
    CHECK(relative_l2(with[k], without[k]) < 3e-6);
  }
}
