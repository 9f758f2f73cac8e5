// SPDX-License-Identifier: Apache-2.0
// exact_gradients.hpp (tests): all gradients of a block in double, sublayer by sublayer, and the bounds within which
// fast operators, wherever they run, must agree with them. Gradients are fp32 in every storage format, so their bounds
// are too: delta never comes from a rounded mixture.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "kernels/support/cpu_case.hpp"
#include "support/catch.hpp"

namespace plumb::testing {

/// Of everything a block of sublayers reads: closed sources, and each sublayer's own partial.
template <class A>
struct Gradients {
  std::vector<Rows<A>> sources;
  std::vector<Rows<A>> partials;
  std::vector<Rows<A>> queries;
};

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
      gradients.queries.push_back(reduced_query_gradient(problem, sums, in.queries[l]));
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

/// Two phases backward: fp32 mixture and log sums again, merge by merge, then all closed sources at once. `run` has the
/// operators under test.
template <class V, class Run>
Gradients<float> two_phase_gradients(const CpuCase<V>& in, Run& run) {
  const DepthProblem& problem = in.problem;
  const std::int64_t size = problem.tokens * problem.width;
  const std::size_t n = in.sources.size();
  const std::size_t readers = in.queries.size();
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
    const void* query = in.queries[l].data();
    const void* grad = in.grads[l].data();
    const PhaseOneQuery one{query, o.data(), lse_o.data()};
    run.phase_one(problem, {list, {&one, 1}, true});
    MergeForward merge{o.data(), lse_o.data(), {&later, 1}, query, h.data(), lse[l].data()};
    merge.fp32_mixture = true;
    run.merge(problem, merge);
    out.partials.push_back(zeros<float>(size));
    run.merge_backward(problem, {o.data(),
                                 lse_o.data(),
                                 {&later, 1},
                                 query,
                                 grad,
                                 lse[l].data(),
                                 delta[l].data(),
                                 out.partials[l].data(),
                                 sums[l].data()});
    all.push_back({query, grad, lse[l].data(), delta[l].data(), sums[l].data(), false});
  }
  out.sources.assign(n, poison<float>(size));
  std::vector<DepthSourceGradient> gradients;
  for (std::size_t i = 0; i < n; ++i) {
    gradients.push_back({list[i], out.sources[i].data(), true});
  }
  run.inter_block_backward(problem, {gradients, all});
  for (std::size_t l = 0; l < readers; ++l) {
    out.queries.push_back(run.query_gradient(problem, sums[l], in.queries[l]));
  }
  return out;
}

/// The bounds of all gradients. `many`: enough tokens that a relative error of dq means something; with few, dq is what
/// cancellation leaves.
inline void check_gradients(const Gradients<float>& got, const Exact& expected, bool many) {
  for (std::size_t i = 0; i < got.sources.size(); ++i) {
    CHECK(relative_l2(got.sources[i], expected.gradients.sources[i]) <= 1e-5);
  }
  for (std::size_t l = 0; l < got.queries.size(); ++l) {
    CHECK(relative_l2(got.partials[l], expected.gradients.partials[l]) <= 1e-5);
    if (many) {
      CHECK(relative_l2(got.queries[l], expected.gradients.queries[l]) <= 2e-5);
    }
    double worst = 0;
    for (std::size_t j = 0; j < got.queries[l].size(); ++j) {
      const double error = std::abs(static_cast<double>(got.queries[l][j]) - expected.gradients.queries[l][j]);
      const double share = error / expected.magnitudes[l][j];
      worst = share <= worst ? worst : share;
    }
    CHECK(worst <= 5e-6);
  }
}

/// An aggregate's backward beside the reference's, into poisoned accumulators (first touch) or on top of what is there.
/// `run(problem, operands, num_sources)` is the operator under test.
template <class V, class Run>
void check_aggregate_backward(std::int64_t tokens, std::int64_t width, int n, bool first_touch, const Run& run) {
  INFO(to_string(kFormat<V>) << ", sources " << n << ", first touch " << first_touch);
  const CpuCase<V> in(tokens, width, n, 1, 2.0);
  const WideCase wide(in);
  const auto size = tokens * width;
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
  Rows<float> sums = zeros<float>(num_token_runs(tokens) * width);
  Rows<double> wide_sums = convert<double>(sums);
  run(in.problem, AggregateBackward{all, in.queries[0].data(), in.grads[0].data(), sums.data()}, count);
  aggregate_backward(wide.problem, {all_wide, wide.queries[0].data(), wide.grads[0].data(), wide_sums.data()});
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(relative_l2(got[i], expected[i]) <= 1e-5);
  }
  const Rows<float> dq = reduced_query_gradient(in.problem, sums, in.queries[0]);
  if (n == 1) {
    CHECK(same_rows(dq, zeros<float>(width)));
  } else {
    CHECK(relative_l2(dq, reduced_query_gradient(wide.problem, wide_sums, wide.queries[0])) <= 2e-5);
  }
}

}  // namespace plumb::testing
