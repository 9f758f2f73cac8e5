// SPDX-License-Identifier: Apache-2.0
// What may not change a bit: instruction set, threads, neighbours of a token, stores past the caches. And what may
// change only by rounding: the order of the sources, one phase or two.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/support/cpu_case.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

/// Bytes of every output of every operator on one case.
struct Outputs {
  std::vector<std::vector<std::byte>> all;

  template <class T>
  void add(const Rows<T>& rows) {
    const auto* data = reinterpret_cast<const std::byte*>(rows.data());
    all.emplace_back(data, data + rows.size() * sizeof(T));
  }
};

template <class V>
Outputs run_everything(const CpuCase<V>& in, cpu::Isa isa, int num_threads,
                       std::size_t stream_bytes = std::size_t{8} << 20) {
  const DepthProblem& problem = in.problem;
  const std::int64_t size = problem.tokens * problem.width;
  const std::size_t n = in.sources.size();
  const std::size_t queries = in.queries.size();
  const std::int64_t sums_size = num_token_runs(problem.tokens) * problem.width;
  TestExecution own(isa, num_threads);
  const auto execution = [&](std::size_t sources, std::size_t readers) {
    cpu::Execution out = own(problem, sources, readers);
    out.stream_bytes = stream_bytes;
    return out;
  };
  Outputs out;
  Rows<float> scales = poison<float>(problem.tokens);
  cpu::inverse_rms(problem, in.sources[0].data(), scales.data(), execution(1, 1));
  out.add(scales);

  std::vector<Rows<V>> o(queries, not_a_number<V>(size));
  std::vector<Rows<float>> wide_o(queries, poison<float>(size));
  std::vector<Rows<float>> lse(queries, poison<float>(problem.tokens));
  std::vector<Rows<float>> r(n, poison<float>(problem.tokens));
  std::vector<DepthSource> unscaled;
  std::vector<void*> r_out;
  for (std::size_t i = 0; i < n; ++i) {
    unscaled.push_back({in.sources[i].data(), nullptr});
    r_out.push_back(r[i].data());
  }
  std::vector<PhaseOneQuery> narrow;
  std::vector<PhaseOneQuery> wide;
  for (std::size_t l = 0; l < queries; ++l) {
    narrow.push_back({in.queries[l].data(), o[l].data(), lse[l].data()});
    wide.push_back({in.queries[l].data(), wide_o[l].data(), lse[l].data()});
  }
  cpu::phase_one_forward(problem, {unscaled, narrow, false, r_out}, execution(n, queries));
  cpu::phase_one_forward(problem, {in.list(), wide, true}, execution(n, queries));
  for (std::size_t l = 0; l < queries; ++l) {
    out.add(o[l]);
    out.add(wide_o[l]);
    out.add(lse[l]);
  }
  for (std::size_t i = 0; i < n; ++i) {
    out.add(r[i]);
    CHECK(same_rows(r[i], in.scales[i]));
  }

  const Rows<float> gain = random_rows<float>("norm gain", problem.width, 0.3, 1.0);
  std::vector<DepthSource> every = in.list();
  every.push_back({in.partial.data(), nullptr});
  for (const bool norms : {false, true}) {
    const OutputNorm norm{norms ? gain.data() : nullptr, 1e-5};
    for (const bool adds : {false, true}) {
      for (const bool direct : {false, true}) {
        Rows<V> h = not_a_number<V>(size);
        Rows<V> partial = not_a_number<V>(size);
        Rows<float> lse_h = poison<float>(problem.tokens);
        MergeForward merge{direct ? nullptr : o[0].data(),
                           direct ? nullptr : lse[0].data(),
                           std::span<const DepthSource>(every).last(direct ? n + 1 : 1),
                           in.queries[0].data(),
                           h.data(),
                           lse_h.data()};
        merge.norm = norm;
        if (adds) {
          merge.output = o[0].data();
          merge.partial_out = partial.data();
        }
        cpu::merge_forward(problem, merge, execution(n + 1, 1));
        out.add(h);
        out.add(lse_h);
        if (adds) {
          out.add(partial);
        }
      }
    }
    Rows<V> h = not_a_number<V>(size);
    cpu::aggregate_forward(problem, {in.list(), in.queries[0].data(), h.data(), nullptr, norm}, execution(n, 1));
    out.add(h);
  }

  Rows<V> sum = not_a_number<V>(size);
  cpu::add_output(problem, {in.partial.data(), in.sources[0].data(), sum.data(), scales.data()}, execution(1, 1));
  out.add(sum);
  out.add(scales);
  const Rows<float> weights = random_rows<float>("weights", problem.tokens * static_cast<std::int64_t>(n * queries));
  std::vector<const void*> values;
  std::vector<void*> sums_out;
  for (const Rows<V>& each : in.sources) {
    values.push_back(each.data());
  }
  for (Rows<V>& each : o) {
    each = not_a_number<V>(size);
    sums_out.push_back(each.data());
  }
  cpu::weighted_sum(problem, {values, weights.data(), sums_out}, execution(n, queries));
  for (const Rows<V>& each : o) {
    out.add(each);
  }

  std::vector<Rows<float>> delta(queries, poison<float>(problem.tokens));
  std::vector<Rows<float>> query_sums(queries, zeros<float>(sums_size));
  std::vector<InterBlockReader> readers;
  const DepthSource later{in.partial.data(), nullptr};
  for (std::size_t l = 0; l < queries; ++l) {
    Rows<float> grad_partial = random_rows<float>("grad partial", size);
    cpu::merge_backward(problem,
                        {wide_o[l].data(),
                         lse[l].data(),
                         {&later, 1},
                         in.queries[l].data(),
                         in.grads[l].data(),
                         lse[l].data(),
                         delta[l].data(),
                         grad_partial.data(),
                         query_sums[l].data()},
                        execution(1, 1));
    out.add(grad_partial);
    out.add(delta[l]);
    readers.push_back(
        {in.queries[l].data(), in.grads[l].data(), lse[l].data(), delta[l].data(), query_sums[l].data(), false});
  }
  std::vector<Rows<float>> gradients;
  std::vector<DepthSourceGradient> accumulators;
  for (std::size_t i = 0; i < n; ++i) {
    gradients.push_back(random_rows<float>("accumulator", size));
  }
  const auto list = in.list();
  for (std::size_t i = 0; i < n; ++i) {
    accumulators.push_back({list[i], gradients[i].data(), i % 2 == 0});
  }
  cpu::inter_block_backward(problem, {accumulators, readers}, execution(n, queries));
  for (DepthSourceGradient& each : accumulators) {
    each.first_touch = !each.first_touch;
  }
  cpu::aggregate_backward(problem, {accumulators, in.queries[0].data(), in.grads[0].data(), query_sums[0].data()},
                          execution(n, 1));
  for (const Rows<float>& each : gradients) {
    out.add(each);
  }
  for (const Rows<float>& each : query_sums) {
    out.add(each);
  }
  return out;
}

void check_same(const Outputs& a, const Outputs& b) {
  REQUIRE(a.all.size() == b.all.size());
  for (std::size_t k = 0; k < a.all.size(); ++k) {
    INFO("output " << k);
    CHECK(a.all[k] == b.all[k]);
  }
}

template <class V>
void check_instruction_sets() {
  for (const auto& [tokens, width, n, queries] :
       {std::array{3, 100, 3, 7}, std::array{2, 1056, 9, 24}, std::array{5, 17, 2, 1}, std::array{3, 64, 1, 2},
        std::array{2, 48, 13, 17}}) {
    const CpuCase<V> in(tokens, width, n, queries, 4.0);
    const Outputs baseline = run_everything(in, cpu::Isa::baseline, 1);
    for (const cpu::Isa isa : {cpu::Isa::avx2, cpu::Isa::avx512}) {
      if (cpu::is_supported(isa)) {
        INFO(cpu::to_string(isa) << ", width " << width << ", sources " << n << ", queries " << queries);
        check_same(baseline, run_everything(in, isa, 1));
      }
    }
  }
}

template <class V>
void check_threads() {
  const CpuCase<V> in(1100, 32, 4, 6, 2.0);
  const Outputs one = run_everything(in, cpu::best_isa(), 1);
  for (const int num_threads : {2, 3, 7}) {
    INFO(num_threads << " threads");
    check_same(one, run_everything(in, cpu::best_isa(), num_threads));
  }
  check_same(one, run_everything(in, cpu::best_isa(), 2, 0));  // stores past the caches
}

// A case whose token t is token order[t] of another.
template <class V>
CpuCase<V> reordered(const CpuCase<V>& in, const std::vector<std::size_t>& order) {
  CpuCase<V> out = in;
  const auto width = static_cast<std::size_t>(in.problem.width);
  const auto move = [&](const auto& from, auto& to, std::size_t length) {
    to.resize(order.size() * length);
    for (std::size_t t = 0; t < order.size(); ++t) {
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(order[t] * length), length,
                  to.begin() + static_cast<std::ptrdiff_t>(t * length));
    }
  };
  out.problem.tokens = static_cast<std::int64_t>(order.size());
  for (std::size_t i = 0; i < in.sources.size(); ++i) {
    move(in.sources[i], out.sources[i], width);
    move(in.scales[i], out.scales[i], 1);
  }
  for (std::size_t l = 0; l < in.grads.size(); ++l) {
    move(in.grads[l], out.grads[l], width);
  }
  move(in.partial, out.partial, width);
  return out;
}

/// Forward mixtures, their log sums and the gradients of sources: everything that belongs to one token.
template <class V>
struct PerToken {
  std::vector<Rows<V>> values;
  std::vector<Rows<float>> statistics;
  std::vector<Rows<float>> gradients;
  std::vector<Rows<float>> dq;

  explicit PerToken(const CpuCase<V>& in) {
    const DepthProblem& problem = in.problem;
    const std::int64_t size = problem.tokens * problem.width;
    const std::size_t n = in.sources.size();
    const std::size_t queries = in.queries.size();
    TestExecution execution;
    const auto list = in.list();
    values.assign(queries + 1, not_a_number<V>(size));
    statistics.assign(2 * queries, poison<float>(problem.tokens));
    std::vector<PhaseOneQuery> all;
    for (std::size_t l = 0; l < queries; ++l) {
      all.push_back({in.queries[l].data(), values[l].data(), statistics[l].data()});
    }
    cpu::phase_one_forward(problem, {list, all}, execution(problem, n, queries));
    const DepthSource later{in.partial.data(), nullptr};
    cpu::merge_forward(
        problem,
        {values[0].data(), statistics[0].data(), {&later, 1}, in.queries[0].data(), values[queries].data(), nullptr},
        execution(problem, 1, 1));
    std::vector<Rows<float>> sums(queries, zeros<float>(num_token_runs(problem.tokens) * problem.width));
    std::vector<InterBlockReader> readers;
    for (std::size_t l = 0; l < queries; ++l) {
      Rows<float>& delta = statistics[queries + l];
      std::fill(delta.begin(), delta.end(), 0.125f);
      readers.push_back(
          {in.queries[l].data(), in.grads[l].data(), statistics[l].data(), delta.data(), sums[l].data(), false});
    }
    gradients.assign(n, poison<float>(size));
    std::vector<DepthSourceGradient> accumulators;
    for (std::size_t i = 0; i < n; ++i) {
      accumulators.push_back({list[i], gradients[i].data(), true});
    }
    cpu::inter_block_backward(problem, {accumulators, readers}, execution(problem, n, queries));
    const Rows<float> ones(static_cast<std::size_t>(problem.width), 1.0f);
    for (std::size_t l = 0; l < queries; ++l) {
      Rows<float> unused = zeros<float>(problem.width);
      dq.push_back(zeros<float>(problem.width));
      cpu::reduce_query_gradient(problem,
                                 {sums[l].data(), in.queries[l].data(), ones.data(), dq[l].data(), unused.data()});
    }
  }

  /// Token t here is token order[t] of `other`, bit for bit.
  void check_moved(const PerToken& other, const std::vector<std::size_t>& order, std::size_t width) const {
    const auto check = [&](const auto& own, const auto& theirs, std::size_t length) {
      for (std::size_t k = 0; k < own.size(); ++k) {
        for (std::size_t t = 0; t < order.size(); ++t) {
          CHECK(
              same_bytes(own[k].data() + t * length, theirs[k].data() + order[t] * length, length * sizeof(own[k][0])));
        }
      }
    };
    check(values, other.values, width);
    check(gradients, other.gradients, width);
    check(statistics, other.statistics, 1);
  }
};

template <class V>
void check_moves() {
  const CpuCase<V> in(300, 40, 9, 6, 2.0);
  const PerToken<V> all(in);
  std::vector<std::size_t> order(300);
  for (std::size_t t = 0; t < order.size(); ++t) {
    order[t] = (t * 77 + 13) % 300;
  }
  const PerToken<V> permuted(reordered(in, order));
  permuted.check_moved(all, order, 40);
  for (std::size_t l = 0; l < all.dq.size(); ++l) {
    CHECK(relative_l2(permuted.dq[l], convert<double>(all.dq[l])) <= 2e-5);
  }
  const std::vector<std::size_t> slice = {250, 251, 252, 253, 254, 255, 256};
  PerToken<V>(reordered(in, slice)).check_moved(all, slice, 40);
}

}  // namespace

TEST_CASE("all instruction sets give the same bits", "[kernels]") {
  SECTION("fp32") { check_instruction_sets<float>(); }
  SECTION("bf16") { check_instruction_sets<Bf16>(); }
  SECTION("fp16") { check_instruction_sets<Fp16>(); }
}

TEST_CASE("any number of threads gives the same bits, query gradients included", "[kernels]") {
  SECTION("fp32") { check_threads<float>(); }
  SECTION("bf16") { check_threads<Bf16>(); }
  SECTION("fp16") { check_threads<Fp16>(); }
}

TEST_CASE("permuted and sliced tokens keep their bits", "[kernels]") {
  SECTION("fp32") { check_moves<float>(); }
  SECTION("bf16") { check_moves<Bf16>(); }
  SECTION("fp16") { check_moves<Fp16>(); }
}

TEST_CASE("NaN and infinite inputs stay with their token", "[kernels]") {
  CpuCase<Bf16> in(9, 48, 4, 3, 2.0);
  const PerToken<Bf16> clean(in);
  in.sources[1][2 * 48 + 5] = to_bf16(std::numeric_limits<float>::quiet_NaN());
  in.sources[2][6 * 48 + 7] = to_bf16(std::numeric_limits<float>::infinity());
  in.partial[8 * 48] = to_bf16(-std::numeric_limits<float>::infinity());
  in.grads[0][4 * 48 + 1] = std::numeric_limits<float>::infinity();
  in.rescale();
  const PerToken<Bf16> spoilt(in);
  for (const std::size_t t : {0, 1, 3, 5, 7}) {
    for (std::size_t k = 0; k < clean.values.size(); ++k) {
      CHECK(same_bytes(clean.values[k].data() + t * 48, spoilt.values[k].data() + t * 48, 48 * sizeof(Bf16)));
    }
    for (std::size_t k = 0; k < clean.gradients.size(); ++k) {
      CHECK(same_bytes(clean.gradients[k].data() + t * 48, spoilt.gradients[k].data() + t * 48, 48 * sizeof(float)));
    }
  }
  CHECK(std::isnan(to_float(spoilt.values[0][2 * 48 + 5])));
}
