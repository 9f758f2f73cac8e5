// SPDX-License-Identifier: Apache-2.0
// Portable reference of the forward operators: plain loops over tokens, one token's rows at a time.
#include "plumb/kernels/depth_attention.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "depth_logits.hpp"
#include "row_math.hpp"

namespace plumb {

namespace {

using namespace kernels_detail;

// sum_i p_i v_i into `mixture`; p comes in as logits and leaves as probabilities.
template <class V, class A>
void mix(std::span<const DepthSource> sources, Scratch<A>& p, A lse, std::int64_t token, std::int64_t width,
         V* mixture) {
  static_assert(std::is_same_v<V, A>, "the output row is the accumulator here: a shorter format needs one of its own");
  for (std::size_t i = 0; i < sources.size(); ++i) {
    p[i] = std::exp(p[i] - lse);
  }
  const V* first = row<V>(sources[0].value, token, width);
  for (std::int64_t j = 0; j < width; ++j) {
    mixture[j] = p[0] * first[j];
  }
  for (std::size_t i = 1; i < sources.size(); ++i) {
    add_scaled(mixture, p[i], row<V>(sources[i].value, token, width), width);
  }
}

// One token of one query over all sources. Null outputs are left out.
template <class V, class A>
void aggregate_token(const DepthProblem& problem, std::span<const DepthSource> sources, const A* query,
                     std::int64_t token, V* mixture, A* lse) {
  const std::int64_t width = problem.width;
  if (sources.size() == 1) {
    // The weight of a sole source is one: copied, so that no exponential can spoil a bit.
    if (mixture != nullptr) {
      std::copy_n(row<V>(sources[0].value, token, width), width, mixture);
    }
    if (lse != nullptr) {
      *lse = logit<V>(problem, sources[0], query, token);
    }
    return;
  }
  Scratch<A> s(sources.size());
  const A log_sum = logits<V>(problem, sources, query, token, s);
  if (mixture != nullptr) {
    mix<V>(sources, s, log_sum, token, width, mixture);
  }
  if (lse != nullptr) {
    *lse = log_sum;
  }
}

template <class V>
void inverse_rms_of_rows(const DepthProblem& problem, const void* block, void* out) {
  using A = Accumulator<V>;
  for (std::int64_t t = 0; t < problem.tokens; ++t) {
    static_cast<A*>(out)[t] = inverse_rms_of_row<A>(row<V>(block, t, problem.width), problem.width, problem.eps);
  }
}

template <class V>
void aggregate(const DepthProblem& problem, const AggregateForward& args) {
  using A = Accumulator<V>;
  for (std::int64_t t = 0; t < problem.tokens; ++t) {
    aggregate_token<V>(problem, args.sources, static_cast<const A*>(args.query), t,
                       args.h == nullptr ? nullptr : row<V>(args.h, t, problem.width),
                       args.lse == nullptr ? nullptr : static_cast<A*>(args.lse) + t);
  }
}

// Tokens outside, queries inside: the rows of a token's sources stay in the cache for all queries.
template <class V>
void phase_one(const DepthProblem& problem, const PhaseOneForward& args) {
  using A = Accumulator<V>;
  for (std::int64_t t = 0; t < problem.tokens; ++t) {
    for (const PhaseOneQuery& q : args.queries) {
      aggregate_token<V>(problem, args.sources, static_cast<const A*>(q.query), t,
                         q.o == nullptr ? nullptr : row<V>(q.o, t, problem.width), static_cast<A*>(q.lse) + t);
    }
  }
}

template <class V>
void merge(const DepthProblem& problem, const MergeForward& args) {
  using A = Accumulator<V>;
  static_assert(std::is_same_v<V, A>, "h carries the running mixture between sources: see mix");
  const std::int64_t width = problem.width;
  for (std::int64_t t = 0; t < problem.tokens; ++t) {
    A lse = static_cast<const A*>(args.lse_in)[t];
    const V* before = row<V>(args.o, t, width);
    V* h = row<V>(args.h, t, width);
    for (const DepthSource& source : args.later) {
      const A s = logit<V>(problem, source, static_cast<const A*>(args.query), t);
      const A weight = sigmoid(s - lse);
      const V* v = row<V>(source.value, t, width);
      for (std::int64_t j = 0; j < width; ++j) {
        h[j] = before[j] + weight * (v[j] - before[j]);
      }
      lse = log_add_exp(lse, s);
      before = h;
    }
    if (args.lse_out != nullptr) {
      static_cast<A*>(args.lse_out)[t] = lse;
    }
  }
}

template <class V>
void add(const DepthProblem& problem, const void* partial, const void* output, void* out) {
  const std::int64_t n = problem.tokens * problem.width;
  const V* f = static_cast<const V*>(output);
  V* sum = static_cast<V*>(out);
  if (partial == nullptr) {
    if (sum != f) {
      std::copy_n(f, n, sum);
    }
    return;
  }
  const V* p = static_cast<const V*>(partial);
  for (std::int64_t i = 0; i < n; ++i) {
    sum[i] = p[i] + f[i];
  }
}

}  // namespace

void inverse_rms(const DepthProblem& problem, const void* block, void* inverse_rms) {
  with_storage(problem.storage, [&]<class V>() { inverse_rms_of_rows<V>(problem, block, inverse_rms); });
}

void fold_query(const DepthProblem& problem, const void* query, const void* gain, void* folded) {
  with_storage(gradient_storage(problem.storage), [&]<class V>() {
    using A = Accumulator<V>;
    for (std::int64_t j = 0; j < problem.width; ++j) {
      static_cast<A*>(folded)[j] = static_cast<const A*>(query)[j] * static_cast<const A*>(gain)[j];
    }
  });
}

void add_output(const DepthProblem& problem, const void* partial, const void* output, void* out) {
  with_storage(problem.storage, [&]<class V>() { add<V>(problem, partial, output, out); });
}

void aggregate_forward(const DepthProblem& problem, const AggregateForward& args) {
  require_sources(args.sources.size(), "an aggregate");
  with_storage(problem.storage, [&]<class V>() { aggregate<V>(problem, args); });
}

void phase_one_forward(const DepthProblem& problem, const PhaseOneForward& args) {
  require_sources(args.sources.size(), "phase one");
  with_storage(problem.storage, [&]<class V>() { phase_one<V>(problem, args); });
}

void merge_forward(const DepthProblem& problem, const MergeForward& args) {
  require_sources(args.later.size(), "a merge");
  with_storage(problem.storage, [&]<class V>() { merge<V>(problem, args); });
}

}  // namespace plumb
