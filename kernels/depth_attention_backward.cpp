// SPDX-License-Identifier: Apache-2.0
// Portable reference of the backward operators. Symbols as in the public header; a token's rows are all visited before
// the next token, and what is summed over tokens goes to the row of its run, in token order.
#include "plumb/kernels/depth_attention_backward.hpp"

#include <algorithm>
#include <cmath>

#include "depth_logits.hpp"
#include "row_math.hpp"

namespace plumb {

namespace {

using namespace kernels_detail;

template <class A>
A* run_row(void* query_sums, std::int64_t token, std::int64_t width) {
  return row<A>(query_sums, token / kTokensPerRun, width);
}

// What one (source, query) pair adds at one token, beyond the mixture's own p G.
template <class A>
struct LogitGradient {
  A ds = 0;  // dL/ds
  A s = 0;   // the logit
  A r = 0;   // 1/rms of the source
};

// gradient += (ds r) (q - s r v / d), and the run's dq += (ds r) v.
template <class V, class A>
void add_logit_gradient(const LogitGradient<A>& g, const V* v, const A* query, std::int64_t width, A* gradient,
                        A* query_sum) {
  const A to_query = g.ds * g.r;
  const A to_value = to_query * g.s * g.r / static_cast<A>(width);
  for (std::int64_t j = 0; j < width; ++j) {
    gradient[j] += to_query * query[j] - to_value * v[j];
    query_sum[j] += to_query * v[j];
  }
}

// accumulator (+)= p G
template <class A>
void add_mixture_gradient(bool overwrite, A p, const A* grad_h, std::int64_t width, A* accumulator) {
  if (overwrite) {
    for (std::int64_t j = 0; j < width; ++j) {
      accumulator[j] = p * grad_h[j];
    }
  } else {
    add_scaled(accumulator, p, grad_h, width);
  }
}

template <class V>
void aggregate(const DepthProblem& problem, const AggregateBackward& args) {
  using A = Accumulator<V>;
  const std::int64_t width = problem.width;
  const std::size_t n = args.sources.size();
  const A* query = static_cast<const A*>(args.query);
  Scratch<A> s(n);
  Scratch<A> u(n);
  for (std::int64_t t = 0; t < problem.tokens; ++t) {
    const A* grad_h = row<A>(args.grad_h, t, width);
    if (n == 1) {
      const DepthSourceGradient& sole = args.sources[0];
      add_mixture_gradient(sole.first_touch, A(1), grad_h, width, row<A>(sole.gradient, t, width));
      continue;
    }
    A greatest = 0;
    for (std::size_t i = 0; i < n; ++i) {
      s[i] = logit<V>(problem, args.sources[i].source, query, t);
      u[i] = dot<A>(grad_h, row<V>(args.sources[i].source.value, t, width), width);
      greatest = i == 0 ? s[i] : std::max(greatest, s[i]);
    }
    A sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      sum += std::exp(s[i] - greatest);
    }
    const A lse = greatest + std::log(sum);
    A delta = 0;
    for (std::size_t i = 0; i < n; ++i) {
      delta += std::exp(s[i] - lse) * u[i];
    }
    for (std::size_t i = 0; i < n; ++i) {
      const DepthSourceGradient& each = args.sources[i];
      const A p = std::exp(s[i] - lse);
      A* gradient = row<A>(each.gradient, t, width);
      add_mixture_gradient(each.first_touch, p, grad_h, width, gradient);
      const LogitGradient<A> g{p * (u[i] - delta), s[i], inverse_rms_at<V>(problem, each.source, t)};
      add_logit_gradient(g, row<V>(each.source.value, t, width), query, width, gradient,
                         run_row<A>(args.query_sums, t, width));
    }
  }
}

// delta = G . h without forming h: joining a source turns G . h into (G . h) + sigma ((G . v) - (G . h)).
template <class V>
void merge(const DepthProblem& problem, const MergeBackward& args) {
  using A = Accumulator<V>;
  const std::int64_t width = problem.width;
  const A* query = static_cast<const A*>(args.query);
  for (std::int64_t t = 0; t < problem.tokens; ++t) {
    const A* grad_h = row<A>(args.grad_h, t, width);
    A delta = dot<A>(grad_h, row<V>(args.o, t, width), width);
    A lse = static_cast<const A*>(args.lse_in)[t];
    A s = 0;
    A u = 0;
    for (const DepthSource& source : args.later) {
      s = logit<V>(problem, source, query, t);
      u = dot<A>(grad_h, row<V>(source.value, t, width), width);
      delta += sigmoid(s - lse) * (u - delta);
      lse = log_add_exp(lse, s);
    }
    static_cast<A*>(args.delta)[t] = delta;
    if (args.grad_partial == nullptr) {
      continue;
    }
    const DepthSource& partial = args.later.back();
    const A p = std::exp(s - static_cast<const A*>(args.lse)[t]);
    A* gradient = row<A>(args.grad_partial, t, width);
    add_scaled(gradient, p, grad_h, width);
    const LogitGradient<A> g{p * (u - delta), s, inverse_rms_at<V>(problem, partial, t)};
    add_logit_gradient(g, row<V>(partial.value, t, width), query, width, gradient,
                       run_row<A>(args.query_sums, t, width));
  }
}

template <class V>
void inter_block(const DepthProblem& problem, const InterBlockBackward& args) {
  using A = Accumulator<V>;
  const std::int64_t width = problem.width;
  for (std::int64_t t = 0; t < problem.tokens; ++t) {
    for (const DepthSourceGradient& each : args.sources) {
      const V* v = row<V>(each.source.value, t, width);
      const A r = inverse_rms_at<V>(problem, each.source, t);
      A* gradient = row<A>(each.gradient, t, width);
      A to_value = 0;  // sum over readers of ds s
      bool overwrite = each.first_touch;
      for (const InterBlockReader& reader : args.readers) {
        const A* grad_h = row<A>(reader.grad_h, t, width);
        if (reader.sole_source) {
          add_mixture_gradient(overwrite, A(1), grad_h, width, gradient);
          overwrite = false;
          continue;
        }
        const A* query = static_cast<const A*>(reader.query);
        const A s = r * dot<A>(query, v, width);
        const A p = std::exp(s - static_cast<const A*>(reader.lse)[t]);
        const A ds = p * (dot<A>(grad_h, v, width) - static_cast<const A*>(reader.delta)[t]);
        add_mixture_gradient(overwrite, p, grad_h, width, gradient);
        overwrite = false;
        A* query_sum = run_row<A>(reader.query_sums, t, width);
        const A to_query = ds * r;
        for (std::int64_t j = 0; j < width; ++j) {
          gradient[j] += to_query * query[j];
          query_sum[j] += to_query * v[j];
        }
        to_value += ds * s;
      }
      add_scaled(gradient, -to_value * r * r / static_cast<A>(width), v, width);
    }
  }
}

// Rows are joined pairwise: 0+1, 2+3, ..., then 0+2, ... in place. The tree depends on the number of rows alone.
template <class A>
void reduce(const DepthProblem& problem, const QueryReduction& args) {
  const std::int64_t width = problem.width;
  const std::int64_t rows = num_token_runs(problem.tokens);
  for (std::int64_t step = 1; step < rows; step *= 2) {
    for (std::int64_t k = 0; k + step < rows; k += 2 * step) {
      add_scaled(row<A>(args.query_sums, k, width), A(1), row<A>(args.query_sums, k + step, width), width);
    }
  }
  const A* dq = static_cast<const A*>(args.query_sums);
  for (std::int64_t j = 0; j < width; ++j) {
    static_cast<A*>(args.grad_query)[j] += dq[j] * static_cast<const A*>(args.gain)[j];
    static_cast<A*>(args.grad_gain)[j] += dq[j] * static_cast<const A*>(args.query)[j];
  }
}

}  // namespace

void aggregate_backward(const DepthProblem& problem, const AggregateBackward& args) {
  require_sources(args.sources.size(), "the backward of an aggregate");
  with_storage(problem.storage, [&]<class V>() { aggregate<V>(problem, args); });
}

void merge_backward(const DepthProblem& problem, const MergeBackward& args) {
  require_sources(args.later.size() + (args.grad_partial == nullptr ? 1 : 0), "the backward of a merge with a partial");
  with_storage(problem.storage, [&]<class V>() { merge<V>(problem, args); });
}

void inter_block_backward(const DepthProblem& problem, const InterBlockBackward& args) {
  require_sources(args.sources.size(), "the inter-block backward");
  require_sources(args.readers.size(), "the inter-block backward (as reader)");
  with_storage(problem.storage, [&]<class V>() { inter_block<V>(problem, args); });
}

void reduce_query_gradient(const DepthProblem& problem, const QueryReduction& args) {
  with_storage(gradient_storage(problem.storage), [&]<class V>() { reduce<Accumulator<V>>(problem, args); });
}

}  // namespace plumb
