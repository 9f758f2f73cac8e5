// SPDX-License-Identifier: Apache-2.0
// cpu_rows.hpp (private): arithmetic on rows for the lanes L of one instruction set.
//
// Bits depend on nothing but the operands: a sum over a row runs in 16 lanes, ascending, segment by segment, then over
// the lanes by a tree; every element of a mixture is a chain of multiply-adds in the order of the sources. How many
// rows, queries or columns stay in registers together is free. Tails are padded with zeros.
#pragma once

#include <cstdint>

#include "cpu_kernels.hpp"

namespace plumb::kernels_detail {

inline constexpr std::int64_t kWide = 16;

/// Long rows are summed in segments, and the segments' sums then: rounding grows with the longer of the two.
inline constexpr std::int64_t kSegment = 1024;

template <class V>
[[gnu::always_inline]] inline const V* row_at(const void* data, std::int64_t token, std::int64_t width) {
  return static_cast<const V*>(data) + token * width;
}
template <class V>
[[gnu::always_inline]] inline V* row_at(void* data, std::int64_t token, std::int64_t width) {
  return static_cast<V*>(data) + token * width;
}

/// `count` < 16 elements, then zeros.
template <class L, class V>
[[gnu::always_inline]] inline typename L::F load_part(const V* p, std::int64_t count) {
  V part[kWide] = {};
  for (std::int64_t k = 0; k < count; ++k) {
    part[k] = p[k];
  }
  return L::load(part);
}

template <class L, class V>
[[gnu::always_inline]] inline void store_part(V* p, typename L::F x, std::int64_t count) {
  V part[kWide];
  L::store(part, x);
  for (std::int64_t k = 0; k < count; ++k) {
    p[k] = part[k];
  }
}

template <class L, class V>
[[gnu::always_inline]] inline typename L::F load_some(const V* p, std::int64_t count) {
  return count >= kWide ? L::load(p) : load_part<L>(p, count);
}

template <class L, class V>
[[gnu::always_inline]] inline void store_some(V* p, typename L::F x, std::int64_t count, bool stream) {
  if (count < kWide) {
    store_part<L>(p, x, count);
  } else if (stream) {
    L::stream(p, x);
  } else {
    L::store(p, x);
  }
}

template <class L, class V>
[[gnu::always_inline]] inline void store_two(V* p, typename L::F x, typename L::F y, bool stream) {
  if (stream) {
    L::stream2(p, x, y);
  } else {
    L::store2(p, x, y);
  }
}

/// A vector's worth of a row, or the last few elements of it. Loops over rows keep the two apart, so that the inner
/// loop has neither their branches nor their stores to the stack.
template <class L>
struct WholeColumns {
  template <class V>
  [[gnu::always_inline]] typename L::F load(const V* p) const {
    return L::load(p);
  }
  template <class V>
  [[gnu::always_inline]] void store(V* p, typename L::F x, bool stream) const {
    if (stream) {
      L::stream(p, x);
    } else {
      L::store(p, x);
    }
  }
};
template <class L>
struct LastColumns {
  std::int64_t count;

  template <class V>
  [[gnu::always_inline]] typename L::F load(const V* p) const {
    return load_part<L>(p, count);
  }
  template <class V>
  [[gnu::always_inline]] void store(V* p, typename L::F x, bool) const {
    store_part<L>(p, x, count);
  }
};

/// step(columns, j) for the columns from begin up to end.
template <class L, class Step>
[[gnu::always_inline]] inline void for_columns(std::int64_t begin, std::int64_t end, const Step& step) {
  std::int64_t j = begin;
  for (; j + kWide <= end; j += kWide) {
    step(WholeColumns<L>{}, j);
  }
  if (j < end) {
    step(LastColumns<L>{(end - j) & (kWide - 1)}, j);  // the mask tells the compiler what it cannot see
  }
}

/// Where the next rows will be wanted: `stride` elements behind the present ones, or separate rows of floats.
struct Ahead {
  std::int64_t stride = 0;
  float* const* rows = nullptr;
};

/// out[r * ld + g] = rows[r] . queries[g]; with kSquares also squares[r] = |rows[r]|^2.
template <class L, class V, int R, int G, bool kSquares>
[[gnu::always_inline]] inline void dots_block(const V* const* rows, const float* const* queries, std::int64_t width,
                                              float* out, std::int64_t ld, const Ahead& ahead, float* squares) {
  constexpr int kSums = kSquares ? G + 1 : G;
  typename L::F sum[R][kSums];
  typename L::F total[R][kSums];
  const V* v[R];
  const float* q[G];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    v[r] = rows[r];
#pragma GCC unroll 8
    for (int g = 0; g < kSums; ++g) {
      sum[r][g] = L::zero();
      total[r][g] = L::zero();
    }
  }
#pragma GCC unroll 8
  for (int g = 0; g < G; ++g) {
    q[g] = queries[g];
  }
  const auto step = [&](auto load, std::int64_t j) __attribute__((always_inline)) {
    typename L::F x[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      x[r] = load(v[r] + j);
    }
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) {
      const typename L::F y = load(q[g] + j);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        sum[r][g] = L::fma(x[r], y, sum[r][g]);
      }
    }
    if constexpr (kSquares) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        sum[r][G] = L::fma(x[r], x[r], sum[r][G]);
      }
    }
  };
  const auto whole = [](const auto* p) __attribute__((always_inline)) { return L::load(p); };
  for (std::int64_t begin = 0; begin < width; begin += kSegment) {
    const std::int64_t end = width - begin < kSegment ? width : begin + kSegment;
    std::int64_t j = begin;
    if (ahead.stride != 0) {
      // One line of the next row for every two of this one: the rest is brought while these rows are mixed.
      constexpr std::int64_t kTwoLines = 128 / static_cast<std::int64_t>(sizeof(V));
      for (; j + kTwoLines <= end; j += kTwoLines) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          L::prefetch(v[r] + ahead.stride + j / 2);
        }
#pragma GCC unroll 4
        for (std::int64_t k = 0; k < kTwoLines; k += kWide) {
          step(whole, j + k);
        }
      }
      for (; j + kWide <= end; j += kWide) {
        step(whole, j);
      }
    } else if (ahead.rows != nullptr) {
      for (; j + kWide <= end; j += kWide) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          L::prefetch(ahead.rows[r] + j);
        }
        step(whole, j);
      }
    } else {
      for (; j + kWide <= end; j += kWide) {
        step(whole, j);
      }
    }
    if (j < end) {
      const std::int64_t rest = end - j;
      step(
          [rest](const auto* p) __attribute__((always_inline)) { return load_part<L>(p, rest); }, j);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int g = 0; g < kSums; ++g) {
        total[r][g] = L::add(total[r][g], sum[r][g]);
        sum[r][g] = L::zero();
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int g = 0; g < G; ++g) {
      out[r * ld + g] = L::sum(total[r][g]);
    }
    if constexpr (kSquares) {
      squares[r] = L::sum(total[r][G]);
    }
  }
}

template <class L, class V, int G, bool kSquares>
void dots_of_queries(const V* const* rows, std::int64_t num_rows, const float* const* queries, std::int64_t width,
                     float* out, std::int64_t ld, Ahead ahead, float* squares) {
  constexpr int kRows = L::kDotRows;
  std::int64_t r = 0;
  const auto behind = [&](std::int64_t done) __attribute__((always_inline)) {
    return Ahead{ahead.stride, ahead.rows == nullptr ? nullptr : ahead.rows + done};
  };
  for (; r + kRows <= num_rows; r += kRows) {
    dots_block<L, V, kRows, G, kSquares>(rows + r, queries, width, out + r * ld, ld, behind(r), squares + r);
  }
  if constexpr (kRows > 2) {
    for (; r + 2 <= num_rows; r += 2) {
      dots_block<L, V, 2, G, kSquares>(rows + r, queries, width, out + r * ld, ld, behind(r), squares + r);
    }
  }
  for (; r < num_rows; ++r) {
    dots_block<L, V, 1, G, kSquares>(rows + r, queries, width, out + r * ld, ld, behind(r), squares + r);
  }
}

/// All products of num_rows rows and num_queries queries; `out` rows are padded with zeros up to `ld`. Unless `squares`
/// is null, also the squares of the rows, which cost no pass of their own.
template <class L, class V>
void dots(const V* const* rows, std::int64_t num_rows, const float* const* queries, int num_queries, std::int64_t width,
          float* out, std::int64_t ld, Ahead ahead, float* squares = nullptr) {
  constexpr int kQueries = L::kDotQueries;
  int g = 0;
  if (squares != nullptr) {
    // They come with a first group so small that all sums stay in registers.
    constexpr int kFirst = kQueries > 4 ? 4 : 1;
    if (num_queries >= kFirst) {
      dots_of_queries<L, V, kFirst, true>(rows, num_rows, queries, width, out, ld, ahead, squares);
      g = kFirst;
    } else {
      dots_of_queries<L, V, 1, true>(rows, num_rows, queries, width, out, ld, ahead, squares);
      g = 1;
    }
    ahead = {};
  }
  for (; g + kQueries <= num_queries; g += kQueries) {
    dots_of_queries<L, V, kQueries, false>(rows, num_rows, queries + g, width, out + g, ld, ahead, nullptr);
    ahead = {};
  }
  if constexpr (kQueries > 4) {
    for (; g + 4 <= num_queries; g += 4) {
      dots_of_queries<L, V, 4, false>(rows, num_rows, queries + g, width, out + g, ld, ahead, nullptr);
      ahead = {};
    }
  }
  if constexpr (kQueries > 2) {
    for (; g + 2 <= num_queries; g += 2) {
      dots_of_queries<L, V, 2, false>(rows, num_rows, queries + g, width, out + g, ld, ahead, nullptr);
      ahead = {};
    }
  }
  for (; g < num_queries; ++g) {
    dots_of_queries<L, V, 1, false>(rows, num_rows, queries + g, width, out + g, ld, ahead, nullptr);
    ahead = {};
  }
  for (std::int64_t r = 0; r < num_rows; ++r) {
    for (std::int64_t k = num_queries; k < ld; ++k) {
      out[r * ld + k] = 0;
    }
  }
}

/// (|v|^2 / width + eps)^(-1/2)
[[gnu::always_inline]] inline float inverse_rms_of(float squares, const TaskShape& shape) {
  return 1.0f / __builtin_sqrtf(squares / static_cast<float>(shape.width) + shape.eps);
}
template <class L, class V>
[[gnu::always_inline]] inline float inverse_rms_of(const V* v, const TaskShape& shape) {
  typename L::F total = L::zero();
  for (std::int64_t begin = 0; begin < shape.width; begin += kSegment) {
    const std::int64_t end = shape.width - begin < kSegment ? shape.width : begin + kSegment;
    typename L::F sum = L::zero();
    for (std::int64_t j = begin; j < end; j += kWide) {
      const typename L::F x = load_some<L>(v + j, end - j);
      sum = L::fma(x, x, sum);
    }
    total = L::add(total, sum);
  }
  return inverse_rms_of(L::sum(total), shape);
}

/// exp(x) for x <= 88, to 2 units in the last place; exactly 1 at 0, exactly 0 below -87.
template <class L>
[[gnu::always_inline]] inline typename L::F exp_of(typename L::F x) {
  using F = typename L::F;
  const F magic = L::set(0x1.8p23f);
  const F kept = L::max(L::set(-87.0f), x);
  const F t = L::fma(kept, L::set(0x1.715476p0f), magic);  // n = round(x / log 2) in the low bits
  const F n = L::sub(t, magic);
  F r = L::fma(n, L::set(-0x1.62e4p-1f), kept);  // log 2 in two parts, the first short
  r = L::fma(n, L::set(-0x1.7f7d1cp-20f), r);
  F e = L::set(1.0f / 5040);  // |r| <= log(2)/2: the series to the 7th power is good to 6e-9
  e = L::fma(e, r, L::set(1.0f / 720));
  e = L::fma(e, r, L::set(1.0f / 120));
  e = L::fma(e, r, L::set(1.0f / 24));
  e = L::fma(e, r, L::set(1.0f / 6));
  e = L::fma(e, r, L::set(0.5f));
  e = L::fma(e, r, L::set(1.0f));
  e = L::fma(e, r, L::set(1.0f));
  return L::zero_below(x, -87.0f, L::mul(e, L::pow2(t)));
}

/// Logits s[i * ld + g] of n sources become probabilities; greatest[ld] and sum[ld] say what was taken out.
template <class L>
void softmax(float* s, std::int64_t n, std::int64_t ld, float* greatest, float* sum) {
  using F = typename L::F;
  for (std::int64_t g = 0; g < ld; g += kWide) {
    F m = L::load(s + g);
    for (std::int64_t i = 1; i < n; ++i) {
      m = L::max(L::load(s + i * ld + g), m);
    }
    F z = L::zero();
    for (std::int64_t i = 0; i < n; ++i) {
      const F e = exp_of<L>(L::sub(L::load(s + i * ld + g), m));
      L::store(s + i * ld + g, e);
      z = L::add(z, e);
    }
    const F scale = L::div(L::set(1.0f), z);
    for (std::int64_t i = 0; i < n; ++i) {
      L::store(s + i * ld + g, L::mul(L::load(s + i * ld + g), scale));
    }
    L::store(greatest + g, m);
    L::store(sum + g, z);
  }
}

/// s[r * ld + g] *= scale[r]
template <class L>
void scale_rows(float* s, std::int64_t num_rows, std::int64_t ld, const float* scale) {
  for (std::int64_t r = 0; r < num_rows; ++r) {
    for (std::int64_t g = 0; g < ld; g += kWide) {
      L::store(s + r * ld + g, L::mul(L::load(s + r * ld + g), L::set(scale[r])));
    }
  }
}

template <class V, class O>
[[gnu::always_inline]] inline constexpr bool same_type() {
  return __is_same(V, O);
}

/// out = v, converted where the formats differ; from itself to itself nothing happens to a bit.
template <class L, class V, class O>
void copy_row(const V* v, O* out, std::int64_t width) {
  if constexpr (same_type<V, O>()) {
    __builtin_memcpy(out, v, static_cast<std::size_t>(width) * sizeof(V));
  } else {
    for (std::int64_t j = 0; j < width; j += kWide) {
      const std::int64_t count = width - j < kWide ? width - j : kWide;
      store_some<L>(out + j, load_some<L>(v + j, count), count, false);
    }
  }
}

}  // namespace plumb::kernels_detail
