// SPDX-License-Identifier: Apache-2.0
// cpu_mixtures.hpp (private): weighted sums of rows for the lanes L of one instruction set.
#pragma once

#include <cstdint>

#include "cpu_rows.hpp"

namespace plumb::kernels_detail {

/// out[g][j] = sum_i p[i * ld + g] rows[i][j] for C vectors of columns, the last of `count` elements.
template <class L, class V, class O, int G, int C>
[[gnu::always_inline]] inline void mix_block(const V* const* rows, std::int64_t n, const float* p, std::int64_t ld,
                                             O* const* out, std::int64_t j, std::int64_t count, bool stream) {
  typename L::F sum[G][C];
  const auto add = [&](std::int64_t i, auto combine) __attribute__((always_inline)) {
    typename L::F x[C];
    const V* v = rows[i] + j;
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      x[c] = C == 1 ? load_some<L>(v, count) : L::load(v + c * kWide);
    }
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) {
      const typename L::F weight = L::set(p[i * ld + g]);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        sum[g][c] = combine(x[c], weight, sum[g][c]);
      }
    }
  };
  using F = typename L::F;
  add(
      0, [](F x, F weight, const F&) __attribute__((always_inline)) { return L::mul(x, weight); });
  for (std::int64_t i = 1; i < n; ++i) {
    add(
        i, [](F x, F weight, const F& so_far) __attribute__((always_inline)) { return L::fma(x, weight, so_far); });
  }
#pragma GCC unroll 8
  for (int g = 0; g < G; ++g) {
    if constexpr (C == 1) {
      store_some<L>(out[g] + j, sum[g][0], count, stream);
    } else {
#pragma GCC unroll 8
      for (int c = 0; c < C; c += 2) {
        store_two<L>(out[g] + j + c * kWide, sum[g][c], sum[g][c + 1], stream);
      }
    }
  }
}

/// The same for exactly N sources, whose columns stay in registers while all queries pass: each is widened once, and
/// stores spread out evenly.
template <class L, class V, class O, int N>
[[gnu::always_inline]] inline void mix_resident(const V* const* rows, const float* p, std::int64_t ld, O* const* out,
                                                int num_out, std::int64_t j, bool stream) {
  using F = typename L::F;
  F x[N][2];
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) {
    x[i][0] = L::load(rows[i] + j);
    x[i][1] = L::load(rows[i] + j + kWide);
  }
  for (int g = 0; g < num_out; ++g) {
    const F first = L::set(p[g]);
    F low = L::mul(x[0][0], first);
    F high = L::mul(x[0][1], first);
#pragma GCC unroll 16
    for (int i = 1; i < N; ++i) {
      const F weight = L::set(p[i * ld + g]);
      low = L::fma(x[i][0], weight, low);
      high = L::fma(x[i][1], weight, high);
    }
    store_two<L>(out[g] + j, low, high, stream);
  }
}

/// Picks N; false where there are more sources than registers, or too few queries to gain.
template <class L, class V, class O, int N = 2>
[[gnu::always_inline]] inline bool mix_resident_of(const V* const* rows, std::int64_t n, const float* p,
                                                   std::int64_t ld, O* const* out, int num_out, std::int64_t j,
                                                   bool stream) {
  if constexpr (N <= L::kMixResident) {
    if (n == N) {
      mix_resident<L, V, O, N>(rows, p, ld, out, num_out, j, stream);
      return true;
    }
    return mix_resident_of<L, V, O, N + 1>(rows, n, p, ld, out, num_out, j, stream);
  } else {
    return false;
  }
}

template <class L, class V, class O, int C>
[[gnu::always_inline]] inline void mix_columns(const V* const* rows, std::int64_t n, const float* p, std::int64_t ld,
                                               O* const* out, int num_out, std::int64_t j, std::int64_t count,
                                               bool stream) {
  constexpr int kQueries = L::kMixQueries;
  int g = 0;
  for (; g + kQueries <= num_out; g += kQueries) {
    mix_block<L, V, O, kQueries, C>(rows, n, p + g, ld, out + g, j, count, stream);
  }
  if constexpr (kQueries > 4) {
    for (; g + 4 <= num_out; g += 4) {
      mix_block<L, V, O, 4, C>(rows, n, p + g, ld, out + g, j, count, stream);
    }
  }
  if constexpr (kQueries > 2) {
    for (; g + 2 <= num_out; g += 2) {
      mix_block<L, V, O, 2, C>(rows, n, p + g, ld, out + g, j, count, stream);
    }
  }
  for (; g < num_out; ++g) {
    mix_block<L, V, O, 1, C>(rows, n, p + g, ld, out + g, j, count, stream);
  }
}

/// What to bring near meanwhile: elements from `offset` on behind each row, one for every `rate` mixed. 0: nothing.
struct MixAhead {
  std::int64_t offset = 0;
  std::int64_t rate = 1;
};

/// All mixtures of one token; out[g] are rows.
template <class L, class V, class O>
void mix_rows(const V* const* rows, std::int64_t n, const float* p, std::int64_t ld, O* const* out, int num_out,
              std::int64_t width, bool stream, MixAhead ahead) {
  constexpr int kColumns = L::kMixColumns;
  std::int64_t j = 0;
  for (; j + kColumns * kWide <= width; j += kColumns * kWide) {
    if (ahead.offset != 0) {
      constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(V));
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t c = 0; c < kColumns * kWide; c += kLine * ahead.rate) {
          L::prefetch(rows[i] + ahead.offset + (j + c) / ahead.rate);
        }
      }
    }
    if (num_out < 4 || !mix_resident_of<L, V, O>(rows, n, p, ld, out, num_out, j, stream)) {
      mix_columns<L, V, O, kColumns>(rows, n, p, ld, out, num_out, j, kWide, stream);
    } else {
      for (std::int64_t c = 2; c < kColumns; c += 2) {
        mix_resident_of<L, V, O>(rows, n, p, ld, out, num_out, j + c * kWide, stream);
      }
    }
  }
  for (; j < width; j += kWide) {
    mix_columns<L, V, O, 1>(rows, n, p, ld, out, num_out, j, width - j < kWide ? width - j : kWide, stream);
  }
}

}  // namespace plumb::kernels_detail
