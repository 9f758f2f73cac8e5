// SPDX-License-Identifier: Apache-2.0
// resident_kernels.hpp (private): phase one with every row read from memory once. Symbols as in depth_attention.hpp.
//
// ResidentKernel does what DotsKernel and MixtureKernel do for up to 8 queries, with the same bits. A block takes some
// tokens in turn; the rows of one lie in shared memory (row_ring.hpp), first for the products, then, weights known, for
// the weighted sums, and slice by slice make room for the next token's. How many tokens a block takes has no part in
// any sum.
#pragma once

#include "cuda/forward_kernels.hpp"
#include "cuda/row_ring.hpp"

namespace plumb::cuda_detail {

/// Most sources whose rows are kept in shared memory.
inline constexpr int kMostResident = 32;

template <class V, class O>
struct ResidentKernel {
  static constexpr int kThreads = kMostRowThreads;
  static constexpr int kGroup = 8;                     // sources whose products are taken together
  static constexpr int kSums = kGroup * (1 + kBatch);  // of source k: |v|^2 at k, products from kGroup + k kBatch on

  std::int64_t tokens;
  std::int64_t width;
  float eps;
  int turn;  // tokens of a block
  int num_queries;
  RowRing<V> ring;
  SourceRows sources[kMostResident];
  float* scale_out[kMostResident];
  const float* query[kBatch];
  O* out[kBatch];      // null where not wanted
  float* lse[kBatch];  // null where not wanted

  /// The ring in so many bytes of shared memory; without slots if they are too few.
  static RowRing<V> ring_in(std::int64_t width, int num_sources, int shared_bytes) {
    return RowRing<V>::fitting(width, num_sources, kMostResident,
                               shared_bytes - table_bytes(row_threads(width), num_sources));
  }
  LaunchShape shape() const {
    const int threads = row_threads(width);
    return {(tokens + turn - 1) / turn, threads, ring.bytes(width) + table_bytes(threads, ring.num_sources)};
  }

  template <class X>
  PLUMB_DEVICE void operator()(X& x) const {
    const int n = ring.num_sources;
    const std::int64_t first = x.block() * turn;
    const int count = static_cast<int>(first + turn < tokens ? turn : tokens - first);
    const auto row_of = [this](int i) { return static_cast<const V*>(sources[i].value); };
    const int sums_at = 4 * ring.slots * n * ring.row_words(x.num_threads());
    auto weights = x.template shared<float>(sums_at + block_sum_bytes(x.num_threads(), kSums), n * kBatch);
    for (int slice = 0; slice < ring.slots; ++slice) {
      ring.start(x, slice, first, count, width, row_of);
      x.commit_copies();
    }
    for (int t = 0; t < count; ++t) {
      const int slice = t * ring.slices;
      for (int group = 0; group < n; group += kGroup) {
        score(x, weights, first + t, slice, group, sums_at);
      }
      if (x.thread() < kBatch) {
        const int l = x.thread();
        softmax_weights<kBatch>(
            x, weights, n, l, l < num_queries, [&](int i) { return weights.get(i * kBatch + l); },
            l < num_queries && lse[l] != nullptr ? lse[l] + first + t : nullptr);
      }
      x.barrier();
      for (int m = 0; m < ring.slices; ++m) {
        mix(x, weights, first + t, slice + m, m);
        ring.start(x, slice + m + ring.slots, first, count, width, row_of);
        x.commit_copies();
      }
    }
  }

 private:
  static constexpr int table_bytes(int threads, int num_sources) {
    return block_sum_bytes(threads, kSums) + num_sources * kBatch * static_cast<int>(sizeof(float));
  }

  PLUMB_DEVICE std::int64_t column(int threads, int thread, int m) const {
    return (static_cast<std::int64_t>(m) * threads + thread) * kColumns;
  }

  // Logits of the sources from `group` on.
  template <class X, class Shared>
  PLUMB_DEVICE void score(X& x, Shared& logits, std::int64_t token, int slice, int group, int sums_at) const {
    auto rows = ring.memory(x);
    const int n = ring.num_sources;
    float sum[kSums];
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      sum[k] = 0;
    }
    for (int m = 0; m < ring.slices; ++m) {
      ring.wait(x, m);
      const std::int64_t j = column(x.num_threads(), x.thread(), m);
      if (j < width) {
        float q[kBatch][kColumns];
#pragma unroll
        for (int l = 0; l < kBatch; ++l) {
          if (l < num_queries) {
            load_columns<true>(x, query[l], j, width, q[l]);
          }
        }
#pragma unroll
        for (int k = 0; k < kGroup; ++k) {
          if (group + k < n) {
            float v[kColumns];
            ring.load(x, rows, (slice + m) % ring.slots, group + k, v);
            sum[k] = dot_columns(x, v, v, sum[k]);
#pragma unroll
            for (int l = 0; l < kBatch; ++l) {
              if (l < num_queries) {
                sum[kGroup + k * kBatch + l] = dot_columns(x, q[l], v, sum[kGroup + k * kBatch + l]);
              }
            }
          }
        }
      }
    }
    warp_sums(x, sum, sums_at);
    const int warps = x.num_threads() / kWarp;
    auto sums = x.template shared<float>(sums_at, warps * kSums);
    const auto over_warps = [&](int value) {
      float total = 0;
      for (int w = 0; w < warps; ++w) {
        total += sums.get(w * kSums + value);
      }
      return total;
    };
    for (int pair = x.thread(); pair < kGroup * kBatch; pair += x.num_threads()) {
      const int k = pair / kBatch;
      const int l = pair % kBatch;
      if (group + k < n) {
        const float* known = sources[group + k].inverse_rms;
        const float r =
            known != nullptr ? known[token] : x.inverse_sqrt(over_warps(k) / static_cast<float>(width) + eps);
        logits.set((group + k) * kBatch + l, l < num_queries ? r * over_warps(kGroup + pair) : 0.0f);
        if (l == 0 && scale_out[group + k] != nullptr) {
          scale_out[group + k][token] = r;
        }
      }
    }
    x.barrier();
  }

  template <class X, class Shared>
  PLUMB_DEVICE void mix(X& x, Shared& weights, std::int64_t token, int slice, int m) const {
    const std::int64_t j = column(x.num_threads(), x.thread(), m);
    if (j >= width) {
      return;
    }
    auto rows = ring.memory(x);
    float sum[kBatch][kColumns];
#pragma unroll
    for (int l = 0; l < kBatch; ++l) {
#pragma unroll
      for (int e = 0; e < kColumns; ++e) {
        sum[l][e] = 0;
      }
    }
    for (int i = 0; i < ring.num_sources; ++i) {
      float v[kColumns];
      ring.load(x, rows, slice % ring.slots, i, v);
      add_weighted(x, weights, i, v, sum);
    }
#pragma unroll
    for (int l = 0; l < kBatch; ++l) {
      if (l < num_queries && out[l] != nullptr) {
        store_columns<true>(x, out[l] + token * width, j, width, sum[l]);
      }
    }
  }
};

}  // namespace plumb::cuda_detail
