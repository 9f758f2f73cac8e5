// SPDX-License-Identifier: Apache-2.0
// tensor_kernels.hpp (private): kernels on tensor cores, for 16-bit storage and aligned rows. Off unless asked for.
//
// TensorKernel      phase one for up to 16 queries and 16 sources: like ResidentKernel, with the products and the
//                   weighted sums as small matrix products.
// TensorDotsKernel  what DotsKernel does for the batched backward: products of up to 16 sources with up to 8 queries
// and
//                   the gradients of as many sublayers, every row read once.
// A warp works on the columns that its own lanes have copied, so that copies need no barrier of the block.
#pragma once

#include "cuda/resident_kernels.hpp"
#include "cuda/tensor_block.hpp"

namespace plumb::cuda_detail {

inline constexpr int kWarpColumns = kColumns * kWarp;  // of a slice

template <class V>
struct TensorKernel {
  static constexpr int kThreads = kMostRowThreads;
  // Weights are scaled into the range of fp16, which has few numbers near 0.
  static constexpr float kWeightScale = std::is_same_v<V, Fp16> ? 16384.0f : 1.0f;

  std::int64_t tokens;
  std::int64_t width;
  float eps;
  int turn;  // tokens of a block
  int num_queries;
  bool with_squares;  // some 1/rms is not known
  RowRing<V> ring;
  SourceRows sources[kTensorSources];
  float* scale_out[kTensorSources];
  const float* query[kTensorRows];
  V* out[kTensorRows];      // null where not wanted
  float* lse[kTensorRows];  // null where not wanted

  /// The ring in so many bytes of shared memory; without slots if it cannot be.
  static RowRing<V> ring_in(std::int64_t width, int num_sources, int shared_bytes) {
    return RowRing<V>::fitting(width, num_sources, kTensorSources, shared_bytes - table_bytes(row_threads(width)));
  }
  LaunchShape shape() const {
    const int threads = row_threads(width);
    return {(tokens + turn - 1) / turn, threads, ring.bytes(width) + table_bytes(threads)};
  }

  template <class X>
  PLUMB_DEVICE void operator()(X& x) const {
    const int n = ring.num_sources;
    const std::int64_t first = x.block() * turn;
    const int count = static_cast<int>(first + turn < tokens ? turn : tokens - first);
    const auto row_of = [this](int i) { return static_cast<const V*>(sources[i].value); };
    const int sums_at = 4 * ring.slots * n * ring.row_words(x.num_threads());
    auto weights = x.template shared<float>(sums_at + tensor_sums_bytes(x.num_threads()), n * kTensorRows);
    for (int slice = 0; slice < ring.slots; ++slice) {
      ring.start(x, slice, first, count, width, row_of);
      x.commit_copies();
    }
    for (int t = 0; t < count; ++t) {
      const int slice = t * ring.slices;
      score(x, weights, first + t, slice, sums_at);
      if (x.thread() < kTensorRows) {
        const int l = x.thread();
        softmax_weights<kTensorRows>(
            x, weights, n, l, l < num_queries, [&](int i) { return weights.get(i * kTensorRows + l); },
            l < num_queries && lse[l] != nullptr ? lse[l] + first + t : nullptr);
      }
      x.barrier();
      SplitPair weight[kOctets][2];
#pragma unroll
      for (int o = 0; o < kOctets; ++o) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          weight[o][h] = split_weights(x, weights, o, h);
        }
      }
      for (int m = 0; m < ring.slices; ++m) {
        mix(x, weight, first + t, slice + m, m);
        x.warp_barrier();
        ring.start(x, slice + m + ring.slots, first, count, width, row_of);
        x.commit_copies();
      }
    }
  }

 private:
  static constexpr int table_bytes(int threads) {
    return tensor_sums_bytes(threads) + kTensorSources * kTensorRows * static_cast<int>(sizeof(float));
  }

  template <class X, class Shared>
  PLUMB_DEVICE void score(X& x, Shared& logits, std::int64_t token, int slice, int sums_at) const {
    const int lane = x.thread() % kWarp;
    const int from = x.thread() / kWarp * kWarpColumns;  // of the warp in a slice
    TensorSums sums;
    clear(sums);
    for (int m = 0; m < ring.slices; ++m) {
      ring.wait(x, m);
      x.warp_barrier();
      const std::int64_t begin = static_cast<std::int64_t>(m) * x.num_threads() * kColumns + from;
      for (int c = 0; c < kWarpColumns && begin + c < width; c += kWarp) {
        RowParts half[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int l = fragment::group(lane) + 8 * h;
          float q[8];
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const std::int64_t j = begin + c + 8 * k + 2 * fragment::member(lane);
            Words2 words{{0, 0}};
            if (l < num_queries && j < width) {
              words = x.load8(query[l] + j);
            }
            q[2 * k] = x.bits_to_float(words.w[0]);
            q[2 * k + 1] = x.bits_to_float(words.w[1]);
          }
          half[h] = row_parts<V>(x, q);
        }
        add_products(x, ring, (slice + m) % ring.slots, from + c, half[0], half[1], with_squares, sums);
      }
    }
    share_sums(x, sums, with_squares, sums_at);
    for (int pair = x.thread(); pair < ring.num_sources * kTensorRows; pair += x.num_threads()) {
      const int i = pair / kTensorRows;
      const int l = pair % kTensorRows;
      const float* known = sources[i].inverse_rms;
      const float r = known != nullptr
                          ? known[token]
                          : x.inverse_sqrt(shared_squares(x, i, sums_at) / static_cast<float>(width) + eps);
      logits.set(pair, l < num_queries ? r * shared_product(x, l, i, sums_at) : 0.0f);
      if (l == 0 && scale_out[i] != nullptr) {
        scale_out[i][token] = r;
      }
    }
    x.barrier();
  }

  // Of row `group` (h 0) or `group` + 8, sources 8 o + 2 member + {0, 1}.
  template <class X, class Shared>
  PLUMB_DEVICE SplitPair split_weights(X& x, Shared& weights, int o, int h) const {
    const int lane = x.thread() % kWarp;
    const int l = fragment::group(lane) + 8 * h;
    const int i = 8 * o + 2 * fragment::member(lane);
    const float first = i < ring.num_sources ? weights.get(i * kTensorRows + l) : 0.0f;
    const float second = i + 1 < ring.num_sources ? weights.get((i + 1) * kTensorRows + l) : 0.0f;
    return split<V>(x, kWeightScale * first, kWeightScale * second);
  }

  // A has high parts of the weights in columns 0..7 and middle parts in 8..15, one per source; both meet the same rows.
  template <class X>
  PLUMB_DEVICE void mix(X& x, const SplitPair (&weight)[kOctets][2], std::int64_t token, int slice, int m) const {
    auto memory = ring.memory(x);
    const int lane = x.thread() % kWarp;
    const int from = x.thread() / kWarp * kWarpColumns;
    const std::int64_t begin = static_cast<std::int64_t>(m) * x.num_threads() * kColumns + from;
    for (int c = 0; c < kWarpColumns && begin + c < width; c += kWarp) {
      float sum[4][4] = {};  // of 8 columns each, as D
#pragma unroll
      for (int o = 0; o < kOctets; ++o) {
        if (8 * o < ring.num_sources) {
          const Words4 rows = x.template load_matrices<true>(
              memory, matrix_word(ring, x.num_threads(), slice % ring.slots, o, from + c, lane));
          const SplitPair& a = weight[o][0];
          const SplitPair& b = weight[o][1];
          const std::uint32_t first[4] = {a.high, b.high, a.middle, b.middle};
          const std::uint32_t second[4] = {a.low, b.low, 0, 0};
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const std::uint32_t twice[2] = {rows.w[k], rows.w[k]};
            x.template multiply<V>(sum[k], first, twice);
            x.template multiply<V>(sum[k], second, twice);
          }
        }
      }
      std::uint32_t word[2][4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const V low = x.template narrow<V>(sum[k][2 * h] * (1.0f / kWeightScale));
          const V high = x.template narrow<V>(sum[k][2 * h + 1] * (1.0f / kWeightScale));
          word[h][k] = static_cast<std::uint32_t>(low.bits) | static_cast<std::uint32_t>(high.bits) << 16;
        }
      }
      gather_columns(x, word);
      const std::int64_t j = begin + c + 8 * fragment::member(lane);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int l = fragment::group(lane) + 8 * h;
        if (l < num_queries && j < width && out[l] != nullptr) {
          x.store16(out[l] + token * width + j, {{word[h][0], word[h][1], word[h][2], word[h][3]}});
        }
      }
    }
  }
};

template <class V>
struct TensorDotsKernel {
  static constexpr int kThreads = kMostRowThreads;

  std::int64_t tokens;
  std::int64_t width;
  float eps;
  int turn;         // tokens of a block
  int num_readers;  // <= kBatch: rows 0..7 are queries, rows 8..15 gradients
  int ld;           // readers per (token, source) in the tables
  bool with_squares;
  RowRing<V> ring;
  RowRing<float> grads;  // slot by slot beside the sources
  SourceRows sources[kTensorSources];
  const float* query[kBatch];
  const float* grad[kBatch];
  float* scale;   // [token][source]
  float* logits;  // [token][source][ld]: s
  float* along;   // [token][source][ld]: G . v

  /// Sets both rings to what fits into so many bytes of shared memory; false if it cannot be.
  bool fit(int num_sources, int readers, int shared_bytes) {
    const int threads = row_threads(width);
    const int per_slot = RowRing<V>::slot_bytes(threads, num_sources) + RowRing<float>::slot_bytes(threads, readers);
    const int fit = (shared_bytes - tensor_sums_bytes(threads)) / per_slot;
    const int slots = fit < kMostSlots ? fit : kMostSlots;
    ring = {num_sources, slots, RowRing<V>::slices_of(width), 0};
    grads = {readers, slots, ring.slices, ring.bytes(width)};
    return num_sources <= kTensorSources && slots >= 2;
  }
  LaunchShape shape() const {
    const int threads = row_threads(width);
    return {(tokens + turn - 1) / turn, threads, ring.bytes(width) + grads.bytes(width) + tensor_sums_bytes(threads)};
  }

  template <class X>
  PLUMB_DEVICE void operator()(X& x) const {
    const std::int64_t first = x.block() * turn;
    const int count = static_cast<int>(first + turn < tokens ? turn : tokens - first);
    const int slots = ring.slots;
    for (int slice = 0; slice < slots; ++slice) {
      start(x, slice, first, count);
    }
    const int sums_at =
        4 * slots *
        (ring.num_sources * ring.row_words(x.num_threads()) + grads.num_sources * grads.row_words(x.num_threads()));
    for (int t = 0; t < count; ++t) {
      TensorSums sums;
      clear(sums);
      for (int m = 0; m < ring.slices; ++m) {
        const int slice = t * ring.slices + m;
        ring.wait(x, 0);
        x.warp_barrier();
        add_slice(x, slice % slots, m, sums);
        x.warp_barrier();
        start(x, slice + slots, first, count);
      }
      share_sums(x, sums, with_squares, sums_at);
      finish(x, first + t, sums_at);
      x.barrier();
    }
  }

 private:
  static constexpr int kMostSlots = 3;

  template <class X>
  PLUMB_DEVICE void start(X& x, int slice, std::int64_t first, int count) const {
    ring.start(x, slice, first, count, width, [this](int i) { return static_cast<const V*>(sources[i].value); });
    grads.start(x, slice, first, count, width, [this](int l) { return grad[l]; });
    x.commit_copies();
  }

  template <class X>
  PLUMB_DEVICE void add_slice(X& x, int slot, int m, TensorSums& sums) const {
    auto memory = grads.memory(x);
    const int lane = x.thread() % kWarp;
    const int l = fragment::group(lane);
    const int from = x.thread() / kWarp * kWarpColumns;
    const std::int64_t begin = static_cast<std::int64_t>(m) * x.num_threads() * kColumns + from;
    for (int c = 0; c < kWarpColumns && begin + c < width; c += kWarp) {
      float q[8] = {};
      float g[8] = {};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int column = c + 8 * k + 2 * fragment::member(lane);
        if (l < num_readers) {
          if (begin + column < width) {
            const Words2 words = x.load8(query[l] + begin + column);
            q[2 * k] = x.bits_to_float(words.w[0]);
            q[2 * k + 1] = x.bits_to_float(words.w[1]);
          }
          const Words2 words = memory.get2(grads.word_of(x.num_threads(), slot, l, from + column));
          g[2 * k] = x.bits_to_float(words.w[0]);
          g[2 * k + 1] = x.bits_to_float(words.w[1]);
        }
      }
      add_products(x, ring, slot, from + c, row_parts<V>(x, q), row_parts<V>(x, g), with_squares, sums);
    }
  }

  template <class X>
  PLUMB_DEVICE void finish(X& x, std::int64_t token, int sums_at) const {
    for (int pair = x.thread(); pair < ring.num_sources * kBatch; pair += x.num_threads()) {
      const int i = pair / kBatch;
      const int l = pair % kBatch;
      const std::int64_t at = token * ring.num_sources + i;
      const float* known = sources[i].inverse_rms;
      const float r = known != nullptr
                          ? known[token]
                          : x.inverse_sqrt(shared_squares(x, i, sums_at) / static_cast<float>(width) + eps);
      if (l == 0) {
        scale[at] = r;
      }
      if (l < num_readers) {
        logits[at * ld + l] = r * shared_product(x, l, i, sums_at);
        along[at * ld + l] = shared_product(x, kBatch + l, i, sums_at);
      }
    }
  }
};

}  // namespace plumb::cuda_detail
