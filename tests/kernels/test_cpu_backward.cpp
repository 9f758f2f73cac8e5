// SPDX-License-Identifier: Apache-2.0
// Fast backward operators against the reference in double on the same stored inputs. Gradients are fp32 in every
// storage format, so their bounds are too: delta never comes from a rounded mixture.
#include <cmath>

#include "kernels/support/cpu_case.hpp"
#include "kernels/support/sampling.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

// Gradients of everything a block of sublayers reads: closed sources, and each sublayer's own partial.
template <class A>
struct Gradients {
  std::vector<Rows<A>> sources;
  std::vector<Rows<A>> partials;
  std::vector<Rows<A>> queries;
};

template <class A>
Rows<A> reduced(const DepthProblem& problem, Rows<A>& sums, const Rows<A>& query) {
  const Rows<A> ones(static_cast<std::size_t>(problem.width), A(1));
  Rows<A> dq = zeros<A>(problem.width);
  Rows<A> unused = dq;
  reduce_query_gradient(problem, {sums.data(), query.data(), ones.data(), dq.data(), unused.data()});
  return dq;
}

/// Two phases backward: fp32 mixture and log sums again, merge by merge, then all closed sources at once.
template <class V>
Gradients<float> fast(const CpuCase<V>& in) {
  const DepthProblem& problem = in.problem;
  const std::int64_t size = problem.tokens * problem.width;
  const std::size_t n = in.sources.size();
  const std::size_t readers = in.queries.size();
  TestExecution execution;
  Gradients<float> out;
  const auto list = in.list();
  const DepthSource later{in.partial.data(), nullptr};
  std::vector<Rows<float>> delta(readers, poison<float>(problem.tokens));
  std::vector<Rows<float>> lse = delta;
  std::vector<Rows<float>> sums(readers, zeros<float>(num_token_runs(problem.tokens) * problem.width));
  std::vector<InterBlockReader> all;
  Rows<V> h = not_a_number<V>(size);
  for (std::size_t l = 0; l < readers; ++l) {
    Rows<float> o = poison<float>(size);
    Rows<float> lse_o = poison<float>(problem.tokens);
    const PhaseOneQuery one{in.queries[l].data(), o.data(), lse_o.data()};
    cpu::phase_one_forward(problem, {list, {&one, 1}, true}, execution(problem, n, 1));
    MergeForward merge{o.data(), lse_o.data(), {&later, 1}, in.queries[l].data(), h.data(), lse[l].data()};
    merge.fp32_mixture = true;
    cpu::merge_forward(problem, merge, execution(problem, 1, 1));
    out.partials.push_back(zeros<float>(size));
    cpu::merge_backward(problem,
                        {o.data(),
                         lse_o.data(),
                         {&later, 1},
                         in.queries[l].data(),
                         in.grads[l].data(),
                         lse[l].data(),
                         delta[l].data(),
                         out.partials[l].data(),
                         sums[l].data()},
                        execution(problem, 1, 1));
    all.push_back({in.queries[l].data(), in.grads[l].data(), lse[l].data(), delta[l].data(), sums[l].data(), false});
  }
  out.sources.assign(n, poison<float>(size));
  std::vector<DepthSourceGradient> gradients;
  for (std::size_t i = 0; i < n; ++i) {
    gradients.push_back({list[i], out.sources[i].data(), true});
  }
  cpu::inter_block_backward(problem, {gradients, all}, execution(problem, n, readers));
  for (std::size_t l = 0; l < readers; ++l) {
    out.queries.push_back(reduced(problem, sums[l], in.queries[l]));
  }
  return out;
}

/// Each sublayer's aggregate on its own, in double; the closed sources' gradients add up. Also what each dq would be if
/// nothing cancelled: sum over tokens and sources of p (|u| + |delta|) |k|.
struct Exact {
  Gradients<double> gradients;
  std::vector<Rows<double>> magnitudes;

  explicit Exact(const WideCase& in) {
    const DepthProblem& problem = in.problem;
    const std::int64_t size = problem.tokens * problem.width;
    const std::size_t n = in.sources.size() - 1;
    const auto list = in.list(n + 1);
    gradients.sources.assign(n, zeros<double>(size));
    for (std::size_t l = 0; l < in.queries.size(); ++l) {
      gradients.partials.push_back(zeros<double>(size));
      Rows<double> sums = zeros<double>(num_token_runs(problem.tokens) * problem.width);
      std::vector<DepthSourceGradient> all;
      for (std::size_t i = 0; i < n; ++i) {
        all.push_back({list[i], gradients.sources[i].data(), false});
      }
      all.push_back({list[n], gradients.partials[l].data(), false});
      aggregate_backward(problem, {all, in.queries[l].data(), in.grads[l].data(), sums.data()});
      gradients.queries.push_back(reduced(problem, sums, in.queries[l]));
      magnitudes.push_back(magnitude(in, list, l));
    }
  }

  static Rows<double> magnitude(const WideCase& in, const std::vector<DepthSource>& list, std::size_t l) {
    const auto width = static_cast<std::size_t>(in.problem.width);
    Rows<double> sum(width, 0.0);
    std::vector<double> p(list.size());
    std::vector<double> u(list.size());
    for (std::size_t t = 0; t < static_cast<std::size_t>(in.problem.tokens); ++t) {
      double z = 0;
      double delta = 0;
      for (std::size_t i = 0; i < list.size(); ++i) {
        const double* v = in.sources[i].data() + t * width;
        double s = 0;
        u[i] = 0;
        for (std::size_t j = 0; j < width; ++j) {
          s += in.queries[l][j] * v[j] * in.scales[i][t];
          u[i] += in.grads[l][t * width + j] * v[j];
        }
        p[i] = std::exp(s);
        z += p[i];
      }
      for (std::size_t i = 0; i < list.size(); ++i) {
        p[i] /= z;
        delta += p[i] * u[i];
      }
      for (std::size_t i = 0; i < list.size(); ++i) {
        const double weight = p[i] * (std::abs(u[i]) + std::abs(delta)) * in.scales[i][t];
        for (std::size_t j = 0; j < width; ++j) {
          sum[j] += weight * std::abs(in.sources[i][t * width + j]);
        }
      }
    }
    return sum;
  }
};

// `many`: enough terms that a relative error of dq means something; with few, dq is what cancellation leaves.
template <class V>
void check_backward(std::int64_t tokens, std::int64_t width, int n, int readers, double query_norm, bool many) {
  INFO(to_string(kFormat<V>) << ", tokens " << tokens << ", width " << width << ", sources " << n << ", readers "
                             << readers << ", |q| " << query_norm);
  const CpuCase<V> in(tokens, width, n, readers, query_norm);
  const WideCase wide(in);
  const Exact expected(wide);
  const Gradients<float> got = fast(in);
  for (std::size_t i = 0; i < got.sources.size(); ++i) {
    CHECK(relative_l2(got.sources[i], expected.gradients.sources[i]) <= 1e-5);
  }
  for (std::size_t l = 0; l < got.queries.size(); ++l) {
    CHECK(relative_l2(got.partials[l], expected.gradients.partials[l]) <= 1e-5);
    if (many) {
      CHECK(relative_l2(got.queries[l], expected.gradients.queries[l]) <= 2e-5);
    }
    double worst = 0;
    for (std::size_t j = 0; j < static_cast<std::size_t>(width); ++j) {
      const double error = std::abs(static_cast<double>(got.queries[l][j]) - expected.gradients.queries[l][j]);
      const double share = error / expected.magnitudes[l][j];
      worst = share <= worst ? worst : share;
    }
    CHECK(worst <= 5e-6);
  }
}

template <class V>
void check_all() {
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
  INFO(to_string(kFormat<V>) << ", sources " << n << ", first touch " << first_touch);
  const CpuCase<V> in(270, 77, n, 1, 2.0);
  const WideCase wide(in);
  TestExecution execution;
  const auto size = in.problem.tokens * in.problem.width;
  const auto count = static_cast<std::size_t>(n);
  const auto list = in.list();
  const auto wide_list = wide.list(count);
  std::vector<Rows<float>> got;
  std::vector<Rows<double>> expected;
  for (std::size_t i = 0; i < count; ++i) {
    const Rows<float> before = random_rows<float>("before " + std::to_string(i), size);
    got.push_back(first_touch ? poison<float>(size) : before);
    expected.push_back(first_touch ? poison<double>(size) : convert<double>(before));
  }
  std::vector<DepthSourceGradient> all;
  std::vector<DepthSourceGradient> all_wide;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back({list[i], got[i].data(), first_touch});
    all_wide.push_back({wide_list[i], expected[i].data(), first_touch});
  }
  Rows<float> sums = zeros<float>(num_token_runs(in.problem.tokens) * in.problem.width);
  Rows<double> wide_sums = convert<double>(sums);
  cpu::aggregate_backward(in.problem, {all, in.queries[0].data(), in.grads[0].data(), sums.data()},
                          execution(in.problem, count, 1));
  aggregate_backward(wide.problem, {all_wide, wide.queries[0].data(), wide.grads[0].data(), wide_sums.data()});
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(relative_l2(got[i], expected[i]) <= 1e-5);
  }
  const Rows<float> dq = reduced(in.problem, sums, in.queries[0]);
  if (n == 1) {
    CHECK(same_rows(dq, zeros<float>(in.problem.width)));
  } else {
    CHECK(relative_l2(dq, reduced(wide.problem, wide_sums, wide.queries[0])) <= 2e-5);
  }
}

}  // namespace

TEST_CASE("fast backward operators keep their bounds in fp32", "[kernels]") { check_all<float>(); }
TEST_CASE("fast backward operators keep their bounds in bf16", "[kernels]") { check_all<Bf16>(); }
TEST_CASE("fast backward operators keep their bounds in fp16", "[kernels]") { check_all<Fp16>(); }

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
