// SPDX-License-Identifier: Apache-2.0
// row_ring.hpp (private): rows of all sources of a token in shared memory, copied there ahead of their use.
//
// A row is cut into slices of 8 columns per thread. A slot of the ring holds one slice of every source; slices follow
// each other through a run of tokens, slice k in slot k % slots. With as many slots as a row has slices, and more, a
// token lies there whole while the first slices of the next are under way. Thread k copies columns [8 k, 8 k + 8) of a
// slice: it may read those as soon as it has waited, its warp's after warp_barrier().
// Rows of a slot are 16 bytes further apart than they are long, so that a warp finds eight of them in eight banks.
#pragma once

#include "cuda/row_block.hpp"

namespace plumb::cuda_detail {

template <class V>
struct RowRing {
  static constexpr int kChunks = sizeof(V) * kColumns / 16;  // copies of 16 bytes per thread, source and slice
  static constexpr int kMostWaited = 7;

  int num_sources;
  int slots;
  int slices;          // of a row
  int first_byte = 0;  // of the block's shared memory

  static constexpr int row_words(int threads) { return 4 * threads * kChunks + 4; }
  static constexpr int slot_bytes(int threads, int num_sources) { return 4 * row_words(threads) * num_sources; }

  static constexpr int slices_of(std::int64_t width) {
    const int columns = kColumns * row_threads(width);
    return static_cast<int>((width + columns - 1) / columns);
  }

  /// The ring that fits, at most two tokens; none if not even one does, or of more sources than `most_sources`.
  static RowRing fitting(std::int64_t width, int num_sources, int most_sources, int bytes) {
    if (num_sources > most_sources) {
      return {num_sources, 0, 1, 0};
    }
    const int threads = row_threads(width);
    const int slices = slices_of(width);
    const int fit = bytes / slot_bytes(threads, num_sources);
    return {num_sources, fit < slices ? 0 : fit < 2 * slices ? fit : 2 * slices, slices, 0};
  }
  int bytes(std::int64_t width) const { return slots * slot_bytes(row_threads(width), num_sources); }

  /// The first word of a source's row in slot k.
  PLUMB_DEVICE int row(int threads, int slot, int source) const {
    return (slot * num_sources + source) * row_words(threads);
  }

  /// The word of a column of a slice; columns of a word, and of the words that a thread copies at once, follow.
  PLUMB_DEVICE int word_of(int threads, int slot, int source, int column) const {
    constexpr int kPerCopy = kColumns / kChunks;
    const int chunk = column % kColumns / kPerCopy;
    return row(threads, slot, source) + 4 * (chunk * threads + column / kColumns) +
           column % kPerCopy * static_cast<int>(sizeof(V)) / 4;
  }

  template <class X>
  PLUMB_DEVICE auto memory(X& x) const {
    return x.template shared<std::uint32_t>(first_byte, slots * num_sources * row_words(x.num_threads()));
  }

  /// Starts copying slice `slice` of the run of tokens from `token` on, if there is one. To be followed by
  /// commit_copies() in any case, so that there is a group per slice.
  template <class X, class Row>
  PLUMB_DEVICE void start(X& x, int slice, std::int64_t token, int tokens, std::int64_t width,
                          const Row& row_of) const {
    if (slice < tokens * slices) {
      auto to = memory(x);
      const std::int64_t at = token + slice / slices;
      const std::int64_t j = (static_cast<std::int64_t>(slice % slices) * x.num_threads() + x.thread()) * kColumns;
      const int slot = slice % slots;
      for (int i = 0; i < num_sources; ++i) {
        const V* from = row_of(i) + at * width;
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
          const int word = row(x.num_threads(), slot, i) + 4 * (c * x.num_threads() + x.thread());
          x.copy16(to, word, j < width ? from + j + c * (kColumns / kChunks) : from, j < width);
        }
      }
    }
  }

  /// Waits until a thread's part of slice m of a token is there: `slots` slices have been started from its first on.
  template <class X>
  PLUMB_DEVICE void wait(X& x, int m) const {
    wait_for<kMostWaited>(x, slots - 1 - m);
  }

  /// The thread's own columns.
  template <class X, class Shared>
  PLUMB_DEVICE void load(X& x, const Shared& memory, int slot, int source, float (&out)[kColumns]) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const Words4 words = memory.get4(row(x.num_threads(), slot, source) + 4 * (c * x.num_threads() + x.thread()));
      unpack<V>(x, words, out + c * (kColumns / kChunks));
    }
  }

 private:
  template <int kGroups, class X>
  PLUMB_DEVICE static void wait_for(X& x, int groups) {
    if constexpr (kGroups == 0) {
      x.template wait_copies<0>();
    } else if (groups >= kGroups) {
      x.template wait_copies<kGroups>();
    } else {
      wait_for<kGroups - 1>(x, groups);
    }
  }
};

}  // namespace plumb::cuda_detail
