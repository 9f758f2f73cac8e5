// SPDX-License-Identifier: Apache-2.0
// depth_logits.hpp (private): logits and their log sum of exponentials, shared by forward and backward so that a
// recomputed probability has the very bits of the forward's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

#include "plumb/kernels/depth_attention.hpp"
#include "row_math.hpp"

namespace plumb::kernels_detail {

template <class V, class A = Accumulator<V>>
A inverse_rms_at(const DepthProblem& problem, const DepthSource& source, std::int64_t token) {
  if (source.inverse_rms != nullptr) {
    return static_cast<const A*>(source.inverse_rms)[token];
  }
  return inverse_rms_of_row<A>(row<V>(source.value, token, problem.width), problem.width, problem.eps);
}

/// s = r (q . v)
template <class V, class A = Accumulator<V>>
A logit(const DepthProblem& problem, const DepthSource& source, const A* query, std::int64_t token) {
  const V* v = row<V>(source.value, token, problem.width);
  return inverse_rms_at<V>(problem, source, token) * dot<A>(query, v, problem.width);
}

/// All logits of one token into `s`; returns log sum_i exp(s_i), the greatest taken out first.
template <class V, class A = Accumulator<V>>
A logits(const DepthProblem& problem, std::span<const DepthSource> sources, const A* query, std::int64_t token,
         Scratch<A>& s) {
  s[0] = logit<V>(problem, sources[0], query, token);
  A greatest = s[0];
  for (std::size_t i = 1; i < sources.size(); ++i) {
    s[i] = logit<V>(problem, sources[i], query, token);
    greatest = std::max(greatest, s[i]);
  }
  A sum = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    sum += std::exp(s[i] - greatest);
  }
  return greatest + std::log(sum);
}

/// 1 / (1 + exp(-x)) without overflow: for large |x| the exponential goes to zero, never to infinity.
template <class A>
A sigmoid(A x) {
  const A e = std::exp(-std::abs(x));
  return (x >= A(0) ? A(1) : e) / (A(1) + e);
}

/// log(exp(a) + exp(b))
template <class A>
A log_add_exp(A a, A b) {
  return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
}

inline void require_sources(std::size_t count, const char* who) {
  if (count == 0) {
    throw std::invalid_argument(std::string("depth attention: ") + who + " needs at least one source, got 0");
  }
}

}  // namespace plumb::kernels_detail
