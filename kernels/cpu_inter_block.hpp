// SPDX-License-Identifier: Apache-2.0
// cpu_inter_block.hpp (private): gradients of closed blocks from all sublayers of a block of sublayers at once.
//
// A tile of tokens at a time: first the products q.v and G.v, from them three coefficients per (source, reader), then
// panels of columns in which the gradients of several sources, or of several queries, are summed in registers. Order of
// every sum: readers ascending within a source's gradient; tokens, then sources ascending within a query's.
#pragma once

#include "cpu_backward.hpp"

namespace plumb::kernels_detail {

inline constexpr std::int64_t kMostTokensInterBlock = 4;

/// Pointers of one tile.
template <class V>
struct InterBlockTile {
  const V** rows;         // [token][source]
  float** gradients;      // [token][source]
  const float** grads;    // [token][reader]: G
  const float** queries;  // [reader]
  float** query_sums;     // [reader], row of the run
  float* scale;           // [token][source]
  float* p;               // [token][source][ld]: q.v, then p
  float* to_query;        // [token][source][ld]: G.v, then ds r
  float* to_value;        // [token][source]: -(sum_l ds s) r^2 / d
  float* lse;             // [ld]
  float* delta;           // [ld]
};

/// Products of one source at one token become coefficients.
template <class L>
[[gnu::always_inline]] inline float coefficients(float* p, float* to_query, const float* lse, const float* delta,
                                                 float r, std::int64_t ld, std::int64_t width) {
  using F = typename L::F;
  F along = L::zero();
  for (std::int64_t l = 0; l < ld; l += kWide) {
    const F s = L::mul(L::load(p + l), L::set(r));
    const F weight = exp_of<L>(L::sub(s, L::load(lse + l)));
    const F ds = L::mul(weight, L::sub(L::load(to_query + l), L::load(delta + l)));
    along = L::fma(ds, s, along);
    L::store(p + l, weight);
    L::store(to_query + l, L::mul(ds, L::set(r)));
  }
  return -(L::sum(along) * r * r / static_cast<float>(width));
}

/// Gradients of I sources at one token, C vectors of columns from j on; with C == 1 of `count` columns.
template <class L, class V, int I, int C>
[[gnu::always_inline]] inline void source_panel(const InterBlockTask& task, const InterBlockTile<V>& tile,
                                                std::int64_t ld, std::int64_t token, std::int64_t i, std::int64_t j,
                                                std::int64_t count) {
  using F = typename L::F;
  const std::int64_t pair = token * task.num_sources + i;
  F sum[I][C];
#pragma GCC unroll 8
  for (int k = 0; k < I; ++k) {
    const F to_value = L::set(tile.to_value[pair + k]);
    const V* v = tile.rows[pair + k] + j;
    const float* so_far = tile.gradients[pair + k] + j;
    const bool overwrite = task.sources[i + k].first_touch;
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const F before = overwrite ? L::zero() : C == 1 ? load_some<L>(so_far, count) : L::load(so_far + c * kWide);
      sum[k][c] = L::fma(to_value, C == 1 ? load_some<L>(v, count) : L::load(v + c * kWide), before);
    }
  }
  const float* const* grads = tile.grads + token * task.num_readers;
  const float* p = tile.p + pair * ld;
  const float* to_query = tile.to_query + pair * ld;
  for (int l = 0; l < task.num_readers; ++l) {
    F g[C];
    F q[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      g[c] = C == 1 ? load_some<L>(grads[l] + j, count) : L::load(grads[l] + j + c * kWide);
      q[c] = C == 1 ? load_some<L>(tile.queries[l] + j, count) : L::load(tile.queries[l] + j + c * kWide);
    }
#pragma GCC unroll 8
    for (int k = 0; k < I; ++k) {
      const F by_g = L::set(p[k * ld + l]);
      const F by_q = L::set(to_query[k * ld + l]);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        sum[k][c] = L::fma(by_q, q[c], L::fma(by_g, g[c], sum[k][c]));
      }
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < I; ++k) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      store_some<L>(tile.gradients[pair + k] + j + c * kWide, sum[k][c], C == 1 ? count : kWide,
                    task.stream && task.sources[i + k].first_touch);
    }
  }
}

/// dq of R readers over all tokens and sources of the tile.
template <class L, class V, int R, int C>
[[gnu::always_inline]] inline void query_panel(const InterBlockTask& task, const InterBlockTile<V>& tile,
                                               std::int64_t ld, std::int64_t tokens, int l, std::int64_t j,
                                               std::int64_t count) {
  using F = typename L::F;
  F sum[R][C];
#pragma GCC unroll 8
  for (int k = 0; k < R; ++k) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const float* so_far = tile.query_sums[l + k] + j + c * kWide;
      sum[k][c] = C == 1 ? load_some<L>(so_far, count) : L::load(so_far);
    }
  }
  const std::int64_t pairs = tokens * task.num_sources;
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    F v[C];
    const float* to_query = tile.to_query + pair * ld + l;
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      v[c] = C == 1 ? load_some<L>(tile.rows[pair] + j, count) : L::load(tile.rows[pair] + j + c * kWide);
    }
#pragma GCC unroll 8
    for (int k = 0; k < R; ++k) {
      const F weight = L::set(to_query[k]);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        sum[k][c] = L::fma(weight, v[c], sum[k][c]);
      }
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < R; ++k) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      store_some<L>(tile.query_sums[l + k] + j + c * kWide, sum[k][c], C == 1 ? count : kWide, false);
    }
  }
}

template <class L, class V, int C>
[[gnu::always_inline]] inline void panel(const InterBlockTask& task, const InterBlockTile<V>& tile, std::int64_t ld,
                                         std::int64_t tokens, std::int64_t j, std::int64_t count) {
  constexpr int kSources = L::kUpdateSources;
  constexpr int kReaders = L::kUpdateReaders;
  for (std::int64_t token = 0; token < tokens; ++token) {
    std::int64_t i = 0;
    for (; i + kSources <= task.num_sources; i += kSources) {
      source_panel<L, V, kSources, C>(task, tile, ld, token, i, j, count);
    }
    if constexpr (kSources > 2) {
      for (; i + 2 <= task.num_sources; i += 2) {
        source_panel<L, V, 2, C>(task, tile, ld, token, i, j, count);
      }
    }
    for (; i < task.num_sources; ++i) {
      source_panel<L, V, 1, C>(task, tile, ld, token, i, j, count);
    }
  }
  int l = 0;
  for (; l + kReaders <= task.num_readers; l += kReaders) {
    query_panel<L, V, kReaders, C>(task, tile, ld, tokens, l, j, count);
  }
  if constexpr (kReaders > 2) {
    for (; l + 2 <= task.num_readers; l += 2) {
      query_panel<L, V, 2, C>(task, tile, ld, tokens, l, j, count);
    }
  }
  for (; l < task.num_readers; ++l) {
    query_panel<L, V, 1, C>(task, tile, ld, tokens, l, j, count);
  }
}

template <class L, class V>
void inter_block_task(const InterBlockTask& task, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = task.shape.width;
  const std::int64_t n = task.num_sources;
  const std::int64_t readers = task.num_readers;
  const std::int64_t ld = padded(readers);
  const std::int64_t most = tokens_per_tile(
      (n * static_cast<std::int64_t>(sizeof(V)) + readers * static_cast<std::int64_t>(sizeof(float))) * width,
      kMostTokensInterBlock, 2 * kTileBytes);
  Scratch64 scratch(task.scratch);
  InterBlockTile<V> tile;
  tile.rows = scratch.take<const V*>(most * n);
  tile.gradients = scratch.take<float*>(most * n);
  tile.grads = scratch.take<const float*>(most * readers);
  tile.queries = scratch.take<const float*>(readers);
  tile.query_sums = scratch.take<float*>(readers);
  tile.scale = scratch.take<float>(most * n);
  tile.p = scratch.take<float>(most * n * ld);
  tile.to_query = scratch.take<float>(most * n * ld);
  tile.to_value = scratch.take<float>(most * n);
  tile.lse = scratch.take<float>(ld);
  tile.delta = scratch.take<float>(ld);
  // Readers of one source alone have p = 1 and ds = 0, which no rounding may spoil; they have no dq.
  float* no_sum = scratch.take<float>(width);
  for (std::int64_t j = 0; j < width; ++j) {
    no_sum[j] = 0;
  }
  bool any_sole = false;
  bool reads_gradients = !task.stream;  // or their lines, before they are overwritten through the caches
  for (std::int64_t i = 0; i < n; ++i) {
    reads_gradients = reads_gradients || !task.sources[i].first_touch;
  }
  for (std::int64_t l = 0; l < ld; ++l) {
    tile.lse[l] = 0;
    tile.delta[l] = 0;
    if (l < readers) {
      tile.queries[l] = static_cast<const float*>(task.readers[l].query);
      any_sole = any_sole || task.readers[l].sole_source;
    }
  }
  for (std::int64_t first = begin; first < end;) {
    const std::int64_t run = first / kTokensPerRun;
    const std::int64_t run_end = (run + 1) * kTokensPerRun < end ? (run + 1) * kTokensPerRun : end;
    const std::int64_t tokens = run_end - first < most ? run_end - first : most;
    for (std::int64_t l = 0; l < readers; ++l) {
      tile.query_sums[l] = task.readers[l].sole_source ? no_sum : row_at<float>(task.readers[l].query_sums, run, width);
    }
    for (std::int64_t k = 0; k < tokens; ++k) {
      for (std::int64_t i = 0; i < n; ++i) {
        const DepthSourceGradient& own = task.sources[i];
        const V* v = row_at<V>(own.source.value, first + k, width);
        tile.rows[k * n + i] = v;
        tile.gradients[k * n + i] = row_at<float>(own.gradient, first + k, width);
        tile.scale[k * n + i] = scale_of<L>(own.source, v, first + k, task.shape, nullptr);
      }
      for (std::int64_t l = 0; l < readers; ++l) {
        tile.grads[k * readers + l] = row_at<float>(task.readers[l].grad_h, first + k, width);
      }
    }
    dots<L, V>(tile.rows, tokens * n, tile.queries, task.num_readers, width, tile.p, ld,
               reads_gradients ? Ahead{0, tile.gradients} : Ahead{});
    for (std::int64_t k = 0; k < tokens; ++k) {
      dots<L, V>(tile.rows + k * n, n, tile.grads + k * readers, task.num_readers, width, tile.to_query + k * n * ld,
                 ld, {});
    }
    for (std::int64_t k = 0; k < tokens; ++k) {
      for (std::int64_t l = 0; l < readers; ++l) {
        const InterBlockReader& reader = task.readers[l];
        tile.lse[l] = reader.sole_source ? 0.0f : static_cast<const float*>(reader.lse)[first + k];
        tile.delta[l] = reader.sole_source ? 0.0f : static_cast<const float*>(reader.delta)[first + k];
      }
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t pair = k * n + i;
        float* p = tile.p + pair * ld;
        float* to_query = tile.to_query + pair * ld;
        for (std::int64_t l = 0; any_sole && l < readers; ++l) {
          if (task.readers[l].sole_source) {
            p[l] = 0;
            to_query[l] = 0;
          }
        }
        tile.to_value[pair] = coefficients<L>(p, to_query, tile.lse, tile.delta, tile.scale[pair], ld, width);
      }
    }
    std::int64_t j = 0;
    constexpr int kColumns = L::kUpdateColumns;
    for (; kColumns > 1 && j + kColumns * kWide <= width; j += kColumns * kWide) {
      panel<L, V, kColumns>(task, tile, ld, tokens, j, kWide);
    }
    for (; j < width; j += kWide) {
      panel<L, V, 1>(task, tile, ld, tokens, j, width - j < kWide ? width - j : kWide);
    }
    first += tokens;
  }
  L::fence();
}

inline std::size_t inter_block_scratch_bytes(std::int64_t width, std::int64_t n, std::int64_t readers) {
  const std::int64_t pairs = kMostTokensInterBlock * n;
  const std::int64_t ld = padded(readers);
  return 2 * Scratch64::bytes<void*>(pairs) + Scratch64::bytes<void*>(kMostTokensInterBlock * readers) +
         2 * Scratch64::bytes<void*>(readers) + 2 * Scratch64::bytes<float>(pairs) +
         2 * Scratch64::bytes<float>(pairs * ld) + 2 * Scratch64::bytes<float>(ld) + Scratch64::bytes<float>(width);
}

}  // namespace plumb::kernels_detail
