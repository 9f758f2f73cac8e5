// SPDX-License-Identifier: Apache-2.0
// forward_bounds.hpp: how far fast forward operators may be from double arithmetic on the same stored inputs.
//
// A logit's error scales with |q| sqrt(d) (Cauchy and Schwarz); a mixture's with its logits' errors and, in a short
// format, with one rounding (two after a merge of a rounded mixture).
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/support/cpu_case.hpp"
#include "support/catch.hpp"

namespace plumb::testing {

inline constexpr double kUlp = 0x1.0p-24;

struct Bounds {
  double mixture_l2;
  double merged_l2;
  double rounding;  // relative, of one store
};
template <class V>
constexpr Bounds kBounds = std::is_same_v<V, float>  ? Bounds{3e-6, 3e-6, 0}
                           : std::is_same_v<V, Bf16> ? Bounds{2.0e-3, 3.0e-3, 0x1p-8}
                                                     : Bounds{2.5e-4, 3.75e-4, 0x1p-11};

/// One query over some sources in double, with what bounds its errors.
struct Expected {
  Rows<double> h;
  Rows<double> lse;
  Rows<double> magnitude;  // sum_i p_i |v_i|
  Rows<double> largest;    // [tokens] max |s|
  double logit_error = 0;

  Expected(const DepthProblem& problem, const std::vector<DepthSource>& sources, const Rows<double>& query)
      : h(zeros<double>(problem.tokens * problem.width)),
        lse(zeros<double>(problem.tokens)),
        magnitude(h),
        largest(lse) {
    aggregate_forward(problem, {sources, query.data(), h.data(), lse.data()});
    for (const DepthSource& source : sources) {
      Rows<double> s = lse;
      aggregate_forward(problem, {{&source, 1}, query.data(), nullptr, s.data()});
      for (std::size_t k = 0; k < h.size(); ++k) {
        const std::size_t t = k / static_cast<std::size_t>(problem.width);
        magnitude[k] += std::exp(s[t] - lse[t]) * std::abs(static_cast<const double*>(source.value)[k]);
        largest[t] = std::max(largest[t], std::abs(s[t]));
      }
    }
    double squares = 0;
    for (const double each : query) {
      squares += each * each;
    }
    logit_error = 2 * kUlp * std::sqrt(squares) * std::sqrt(static_cast<double>(problem.width));
  }
};

/// `got` against h: `l2` relative in the 2-norm, elementwise what the errors of logits and one rounding may do, and
/// `of_parts` of sum_i p_i |v_i|.
template <class O>
void check_mixture(const Rows<O>& got, const Expected& expected, double l2, double rounding, double of_parts = 0) {
  const Rows<double> wide = to_double(got);
  const std::size_t width = expected.h.size() / expected.lse.size();
  // A relative error in the 2-norm is a statement about many elements.
  CHECK((wide.size() < 500 || rms_of_rows(wide, expected.h, width) <= l2));
  double worst = 0;
  for (std::size_t k = 0; k < wide.size(); ++k) {
    const double ds = expected.logit_error + 4 * kUlp * expected.largest[k / width];
    const double bound = (4 * ds + 0x1p-20) * expected.magnitude[k] + rounding * std::abs(expected.h[k]) +
                         of_parts * expected.magnitude[k] + 1e-30 + (std::is_same_v<O, Fp16> ? 0x1p-24 : 0.0);
    const double error = std::abs(wide[k] - expected.h[k]);
    worst = std::max(worst, error <= 1e30 ? error / bound : 1e30);
  }
  CHECK(worst <= 1.0);
}

inline void check_lse(const Rows<float>& got, const Expected& expected) {
  for (std::size_t t = 0; t < got.size(); ++t) {
    const double scale = std::max(1.0, std::max(std::abs(expected.lse[t]), expected.largest[t]));
    CHECK(std::abs(static_cast<double>(got[t]) - expected.lse[t]) <= expected.logit_error + 12 * kUlp * scale);
  }
}

/// What phase one made of one query over `num_sources`, in storage and in fp32.
template <class V>
void check_phase_one(const Rows<V>& o, const Rows<float>& wide_o, const Rows<float>& lse, std::size_t num_sources,
                     const Expected& closed) {
  const double sole = num_sources == 1 ? 0.0 : 1.0;  // a sole source is copied
  check_mixture(o, closed, sole * kBounds<V>.mixture_l2, sole * kBounds<V>.rounding);
  check_mixture(wide_o, closed, sole * 3e-6, 0);
  check_lse(lse, closed);
}

/// Query l's aggregate, and the open partial that joins: to the stored mixture, to the fp32 one, and directly. `run`
/// has the operators under test.
template <class V, class Run>
void check_merges(Run& run, const CpuCase<V>& in, std::size_t l, const Rows<V>& o, const Rows<float>& wide_o,
                  const Rows<float>& lse, const Expected& closed, const Expected& joined) {
  const DepthProblem& problem = in.problem;
  const Bounds bounds = kBounds<V>;
  const double sole = in.sources.size() == 1 ? 0.0 : 1.0;
  const Rows<V> unwritten = not_a_number<V>(problem.tokens * problem.width);
  const auto sources = in.list();
  Rows<V> h = unwritten;
  Rows<float> lse_h = poison<float>(problem.tokens);
  run.aggregate(problem, {sources, in.queries[l].data(), h.data(), lse_h.data()});
  check_mixture(h, closed, sole * bounds.mixture_l2, sole * bounds.rounding);
  check_lse(lse_h, closed);

  const DepthSource later{in.partial.data(), nullptr};
  h = unwritten;
  MergeForward merge{o.data(), lse.data(), {&later, 1}, in.queries[l].data(), h.data(), lse_h.data()};
  run.merge(problem, merge);
  check_mixture(h, joined, bounds.merged_l2, bounds.rounding, bounds.rounding);
  check_lse(lse_h, joined);
  h = unwritten;
  merge.o = wide_o.data();
  merge.h = h.data();
  merge.fp32_mixture = true;
  run.merge(problem, merge);
  check_mixture(h, joined, bounds.mixture_l2, bounds.rounding);

  std::vector<DepthSource> every = sources;
  every.push_back(later);
  h = unwritten;
  run.merge(problem, {nullptr, nullptr, every, in.queries[l].data(), h.data(), lse_h.data()});
  check_mixture(h, joined, bounds.mixture_l2, bounds.rounding);
  check_lse(lse_h, joined);
}

}  // namespace plumb::testing
