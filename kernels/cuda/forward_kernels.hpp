// SPDX-License-Identifier: Apache-2.0
// forward_kernels.hpp (private): bodies of the forward kernels. Symbols as in depth_attention.hpp.
//
// DotsKernel    one block per (token, source): |v|^2 and its products with up to 8 queries and, for the backward, with
//               the gradients G of as many sublayers.
// MixtureKernel one block per token: softmax over the sources, then up to 8 weighted sums while each row is read once.
// MixKernel     one block per token: everything for one query: a prior mixture joins sources, the last of which may be
//               summed and rounded first, and the result may be normalised.
#pragma once

#include "cuda/row_block.hpp"
#include "cuda/tables.hpp"

namespace plumb::cuda_detail {

struct SourceRows {
  const void* value;
  const float* inverse_rms;  // null: computed
};

template <class V, int kQueries, bool kGrads, bool kVector>
struct DotsKernel {
  static constexpr int kThreads = kMostRowThreads;
  static constexpr int kValues = 1 + kQueries * (kGrads ? 2 : 1);

  std::int64_t width;
  float eps;
  int num_sources;
  int num_queries;  // <= kQueries; 0: only 1/rms
  int num_grads;    // <= kQueries
  int ld;           // queries per (token, source) in the tables
  SourceRows sources[kMostSources];
  float* scale_out[kMostSources];  // [tokens] each, or null
  const float* query[kQueries];
  const float* grad[kQueries];
  float* scale;   // [token][source], or null
  float* logits;  // [token][source][ld]: s
  float* along;   // [token][source][ld]: G . v

  static LaunchShape shape(std::int64_t tokens, std::int64_t width, int num_sources) {
    const int threads = row_threads(width);
    return {tokens * num_sources, threads, block_sum_bytes(threads, kValues)};
  }

  template <class X>
  PLUMB_DEVICE void operator()(X& x) const {
    const std::int64_t pair = x.block();
    const std::int64_t token = pair / num_sources;
    const int source = static_cast<int>(pair % num_sources);
    const V* row = static_cast<const V*>(sources[source].value) + token * width;
    float sum[kValues];
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      sum[k] = 0;
    }
    for (std::int64_t j = x.thread() * kColumns; j < width; j += x.num_threads() * kColumns) {
      float v[kColumns];
      float other[kColumns];
      load_columns<kVector>(x, row, j, width, v);
      sum[0] = dot_columns(x, v, v, sum[0]);
#pragma unroll
      for (int l = 0; l < kQueries; ++l) {
        if (l < num_queries) {
          load_columns<kVector>(x, query[l], j, width, other);
          sum[1 + l] = dot_columns(x, other, v, sum[1 + l]);
        }
        if constexpr (kGrads) {
          if (l < num_grads) {
            load_columns<kVector>(x, grad[l] + token * width, j, width, other);
            sum[1 + kQueries + l] = dot_columns(x, other, v, sum[1 + kQueries + l]);
          }
        }
      }
    }
    block_sum(x, sum, 0);
    if (x.thread() != 0) {
      return;
    }
    const float* known = sources[source].inverse_rms;
    const float r = known != nullptr ? known[token] : x.inverse_sqrt(sum[0] / static_cast<float>(width) + eps);
    if (scale != nullptr) {
      scale[pair] = r;
    }
    if (scale_out[source] != nullptr) {
      scale_out[source][token] = r;
    }
#pragma unroll
    for (int l = 0; l < kQueries; ++l) {
      if (l < num_queries) {
        logits[pair * ld + l] = r * sum[1 + l];
      }
      if constexpr (kGrads) {
        if (l < num_grads) {
          along[pair * ld + l] = sum[1 + kQueries + l];
        }
      }
    }
  }
};

/// Weights of query l over the sources, from its logits, into column l of [source][kLd]; one thread per query. An
/// unused query gets zeros, so that no weight is read unset. `lse`: null if not wanted.
template <int kLd, class X, class Shared, class Logit>
PLUMB_DEVICE void softmax_weights(X& x, Shared& weights, int num_sources, int l, bool used, const Logit& logit,
                                  float* lse) {
  if (!used || num_sources == 1) {  // a sole source has exactly 1, whatever the logit
    if (lse != nullptr) {
      *lse = logit(0);
    }
    for (int i = 0; i < num_sources; ++i) {
      weights.set(i * kLd + l, used ? 1.0f : 0.0f);
    }
    return;
  }
  float greatest = logit(0);
  for (int i = 1; i < num_sources; ++i) {
    const float s = logit(i);
    greatest = s > greatest ? s : greatest;
  }
  float sum = 0;
  for (int i = 0; i < num_sources; ++i) {
    const float e = x.exp(logit(i) - greatest);
    weights.set(i * kLd + l, e);
    sum += e;
  }
  for (int i = 0; i < num_sources; ++i) {
    weights.set(i * kLd + l, weights.get(i * kLd + l) / sum);
  }
  if (lse != nullptr) {
    *lse = greatest + x.log(sum);
  }
}

/// sum[l] + weight of query l on source i times v, over the columns of a thread.
template <class X, class Shared>
PLUMB_DEVICE void add_weighted(X& x, Shared& weights, int i, const float (&v)[kColumns],
                               float (&sum)[kBatch][kColumns]) {
#pragma unroll
  for (int l = 0; l < kBatch; ++l) {
    const float weight = weights.get(i * kBatch + l);
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      sum[l][e] = x.fma(weight, v[e], sum[l][e]);
    }
  }
}

template <class V, class O, bool kVector>
struct MixtureKernel {
  static constexpr int kThreads = kMostRowThreads;

  std::int64_t width;
  int num_sources;
  int num_outputs;  // <= kBatch
  int ld;
  bool weighted;  // the table holds weights, not logits
  const void* sources[kMostSources];
  const float* table;  // [token][source][ld]
  O* out[kBatch];      // null where not wanted
  float* lse[kBatch];  // null where not wanted

  static LaunchShape shape(std::int64_t tokens, std::int64_t width, int num_sources) {
    return {tokens, row_threads(width), num_sources * kBatch * static_cast<int>(sizeof(float))};
  }

  template <class X>
  PLUMB_DEVICE void operator()(X& x) const {
    const std::int64_t token = x.block();
    auto weights = x.template shared<float>(0, num_sources * kBatch);
    if (x.thread() < kBatch) {
      const int l = x.thread();
      const float* column = table + token * num_sources * ld + l;
      if (weighted) {
        for (int i = 0; i < num_sources; ++i) {
          weights.set(i * kBatch + l, l < num_outputs ? column[i * ld] : 0.0f);
        }
      } else {
        softmax_weights<kBatch>(
            x, weights, num_sources, l, l < num_outputs, [&](int i) { return column[i * ld]; },
            l < num_outputs && lse[l] != nullptr ? lse[l] + token : nullptr);
      }
    }
    x.barrier();
    for (std::int64_t j = x.thread() * kColumns; j < width; j += x.num_threads() * kColumns) {
      float sum[kBatch][kColumns];
#pragma unroll
      for (int l = 0; l < kBatch; ++l) {
#pragma unroll
        for (int e = 0; e < kColumns; ++e) {
          sum[l][e] = 0;
        }
      }
#pragma unroll 4
      for (int i = 0; i < num_sources; ++i) {
        float v[kColumns];
        load_columns<kVector>(x, static_cast<const V*>(sources[i]) + token * width, j, width, v);
        add_weighted(x, weights, i, v, sum);
      }
#pragma unroll
      for (int l = 0; l < kBatch; ++l) {
        if (l < num_outputs && out[l] != nullptr) {
          store_columns<kVector>(x, out[l] + token * width, j, width, sum[l]);
        }
      }
    }
  }
};

template <class V, class O, bool kVector>
struct MixKernel {
  static constexpr int kThreads = kMostRowThreads;
  static constexpr int kGroup = 4;  // sources whose sums are taken together

  std::int64_t width;
  float eps;
  int num_sources;
  SourceRows sources[kMostSources];
  const V* output;  // null, or added to the last source and stored in partial_out
  V* partial_out;
  const O* prior;  // null, or a mixture with log sum prior_lse
  const float* prior_lse;
  const float* query;
  const float* norm_gain;  // null: no norm
  float norm_eps;
  V* h;        // null if not wanted
  float* lse;  // null if not wanted

  static LaunchShape shape(std::int64_t tokens, std::int64_t width, int num_sources) {
    const int threads = row_threads(width);
    return {tokens, threads, sums_bytes(threads) + (2 * num_sources + 1) * static_cast<int>(sizeof(float))};
  }

  template <class X>
  PLUMB_DEVICE void operator()(X& x) const {
    const std::int64_t token = x.block();
    const float before = prior != nullptr ? prior_lse[token] : 0.0f;
    auto logits = x.template shared<float>(sums_bytes(x.num_threads()), num_sources);
    for (int first = 0; first < num_sources; first += kGroup) {
      score(x, logits, token, first);
    }
    auto weights = x.template shared<float>(sums_bytes(x.num_threads()) + num_sources * 4, num_sources + 1);
    weigh(x, logits, weights, token, before);
    if (h == nullptr) {
      return;
    }
    x.barrier();
    float factor = 1;
    if (norm_gain != nullptr) {
      float squares[1] = {0};
      for (std::int64_t j = x.thread() * kColumns; j < width; j += x.num_threads() * kColumns) {
        float mixed[kColumns];
        mix(x, weights, token, j, mixed);
        squares[0] = dot_columns(x, mixed, mixed, squares[0]);
      }
      block_sum(x, squares, 0);
      factor = x.inverse_sqrt(squares[0] / static_cast<float>(width) + norm_eps);
    }
    for (std::int64_t j = x.thread() * kColumns; j < width; j += x.num_threads() * kColumns) {
      float mixed[kColumns];
      mix(x, weights, token, j, mixed);
      if (norm_gain != nullptr) {
        float gain[kColumns];
        load_columns<kVector>(x, norm_gain, j, width, gain);
#pragma unroll
        for (int e = 0; e < kColumns; ++e) {
          mixed[e] = mixed[e] * factor * gain[e];
        }
      }
      store_columns<kVector>(x, h + token * width, j, width, mixed);
    }
  }

 private:
  static constexpr int sums_bytes(int threads) { return block_sum_bytes(threads, 2 * kGroup); }

  PLUMB_DEVICE const V* row(int i, std::int64_t token) const {
    const void* data = output != nullptr && i == num_sources - 1 ? partial_out : sources[i].value;
    return static_cast<const V*>(data) + token * width;
  }

  // Logits of the group of sources from `first` on. What is scored is the rounded sum.
  template <class X, class Shared>
  PLUMB_DEVICE void score(X& x, Shared& logits, std::int64_t token, int first) const {
    float sum[2 * kGroup];
#pragma unroll
    for (int k = 0; k < 2 * kGroup; ++k) {
      sum[k] = 0;
    }
    for (std::int64_t j = x.thread() * kColumns; j < width; j += x.num_threads() * kColumns) {
      float q[kColumns];
      load_columns<kVector>(x, query, j, width, q);
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        const int i = first + k;
        if (i < num_sources) {
          float v[kColumns];
          load_columns<kVector>(x, static_cast<const V*>(sources[i].value) + token * width, j, width, v);
          if (output != nullptr && i == num_sources - 1) {
            float f[kColumns];
            load_columns<kVector>(x, output + token * width, j, width, f);
#pragma unroll
            for (int e = 0; e < kColumns; ++e) {
              v[e] = x.widen(x.template narrow<V>(v[e] + f[e]));
            }
            store_columns<kVector>(x, partial_out + token * width, j, width, v);
          }
          sum[k] = dot_columns(x, v, v, sum[k]);
          sum[kGroup + k] = dot_columns(x, q, v, sum[kGroup + k]);
        }
      }
    }
    block_sum(x, sum, 0);
    if (x.thread() == 0) {
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        const int i = first + k;
        if (i < num_sources) {
          const bool summed = output != nullptr && i == num_sources - 1;
          const float* known = summed ? nullptr : sources[i].inverse_rms;
          const float r = known != nullptr ? known[token] : x.inverse_sqrt(sum[k] / static_cast<float>(width) + eps);
          logits.set(i, r * sum[kGroup + k]);
        }
      }
    }
    x.barrier();
  }

  // Logits to weights, the last of which is the prior's; one thread per weight.
  template <class X, class Shared>
  PLUMB_DEVICE void weigh(X& x, Shared& logits, Shared& weights, std::int64_t token, float before) const {
    const bool sole = prior == nullptr && num_sources == 1;
    float greatest = prior != nullptr ? before : logits.get(0);
    for (int i = 0; i < num_sources; ++i) {
      greatest = logits.get(i) > greatest ? logits.get(i) : greatest;
    }
    float sum = prior != nullptr ? x.exp(before - greatest) : 0.0f;
    for (int i = 0; i < num_sources; ++i) {
      sum += x.exp(logits.get(i) - greatest);
    }
    if (lse != nullptr && x.thread() == 0) {
      lse[token] = sole ? logits.get(0) : greatest + x.log(sum);
    }
    for (int i = x.thread(); i <= num_sources; i += x.num_threads()) {
      const float logit = i < num_sources ? logits.get(i) : before;
      weights.set(i, sole ? 1.0f : x.exp(logit - greatest) / sum);
    }
  }

  template <class X, class Shared>
  PLUMB_DEVICE void mix(X& x, Shared& weights, std::int64_t token, std::int64_t j, float (&mixed)[kColumns]) const {
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      mixed[e] = 0;
    }
    if (prior != nullptr) {
      const float weight = weights.get(num_sources);
      load_columns<kVector>(x, prior + token * width, j, width, mixed);
#pragma unroll
      for (int e = 0; e < kColumns; ++e) {
        mixed[e] *= weight;
      }
    }
    for (int i = 0; i < num_sources; ++i) {
      const float weight = weights.get(i);
      float v[kColumns];
      load_columns<kVector>(x, row(i, token), j, width, v);
#pragma unroll
      for (int e = 0; e < kColumns; ++e) {
        mixed[e] = x.fma(weight, v[e], mixed[e]);
      }
    }
  }
};

/// out = partial + output, rounded; with inverse_rms its 1/rms.
template <class V, bool kVector>
struct AddKernel {
  static constexpr int kThreads = kMostRowThreads;

  std::int64_t width;
  float eps;
  const V* partial;  // may be null
  const V* output;
  V* out;
  float* inverse_rms;  // may be null

  static LaunchShape shape(std::int64_t tokens, std::int64_t width) {
    const int threads = row_threads(width);
    return {tokens, threads, block_sum_bytes(threads, 1)};
  }

  template <class X>
  PLUMB_DEVICE void operator()(X& x) const {
    const std::int64_t begin = x.block() * width;
    float squares[1] = {0};
    for (std::int64_t j = x.thread() * kColumns; j < width; j += x.num_threads() * kColumns) {
      float v[kColumns];
      load_columns<kVector>(x, output + begin, j, width, v);
      if (partial != nullptr) {
        float p[kColumns];
        load_columns<kVector>(x, partial + begin, j, width, p);
#pragma unroll
        for (int e = 0; e < kColumns; ++e) {
          v[e] = x.widen(x.template narrow<V>(p[e] + v[e]));
        }
      }
      store_columns<kVector>(x, out + begin, j, width, v);
      squares[0] = dot_columns(x, v, v, squares[0]);
    }
    if (inverse_rms == nullptr) {
      return;
    }
    block_sum(x, squares, 0);
    if (x.thread() == 0) {
      inverse_rms[x.block()] = x.inverse_sqrt(squares[0] / static_cast<float>(width) + eps);
    }
  }
};

}  // namespace plumb::cuda_detail
