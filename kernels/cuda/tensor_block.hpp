// SPDX-License-Identifier: Apache-2.0
// tensor_block.hpp (private): products of up to 16 fp32 rows with up to 16 rows of 16-bit numbers, by mma.m16n8k16.
//
// An fp32 number is the exact sum of three of bf16 or fp16: x = high + middle + low. With 8 rows, A has their high
// parts in rows 0..7 and their middle parts in rows 8..15, and one more multiply takes the low parts of 16 rows; a lane
// gets the parts of one product in its own registers. fp16 has few exponents, so a row's 32 columns are scaled to it
// first. Sums in tensor cores may be cut off rather than rounded, so they run over 32 columns only; all others are fp32
// adds. Fragments: mma_fragments.hpp. Which warp and lane sums what follows from the width alone.
#pragma once

#include <type_traits>

#include "cuda/mma_fragments.hpp"
#include "cuda/row_ring.hpp"

namespace plumb::cuda_detail {

inline constexpr int kTensorRows = 16;     // fp32 rows of a multiply
inline constexpr int kTensorSources = 16;  // in octets: columns of B
inline constexpr int kOctets = kTensorSources / 8;

/// The parts of two neighbouring numbers, each pair packed as an element pair of a fragment.
struct SplitPair {
  std::uint32_t high;
  std::uint32_t middle;
  std::uint32_t low;
};

template <class V, class X>
PLUMB_DEVICE SplitPair split(X& x, float first, float second) {
  std::uint32_t part[3];
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    const V a = x.template narrow<V>(first);
    const V b = x.template narrow<V>(second);
    part[k] = static_cast<std::uint32_t>(a.bits) | static_cast<std::uint32_t>(b.bits) << 16;
    first -= x.widen(a);
    second -= x.widen(b);
  }
  return {part[0], part[1], part[2]};
}

/// Powers of two that bring numbers up to `largest` into the range of V, and back.
struct Scale {
  float up;
  float down;
};

template <class V, class X>
PLUMB_DEVICE Scale scale_for(X& x, float largest) {
  if constexpr (std::is_same_v<V, Fp16>) {
    const int exponent = static_cast<int>(x.float_to_bits(largest) >> 23 & 0xffu);
    const int up = 267 - exponent < 1 ? 1 : 267 - exponent > 253 ? 253 : 267 - exponent;  // largest * up < 2^14
    return {x.bits_to_float(static_cast<std::uint32_t>(up) << 23),
            x.bits_to_float(static_cast<std::uint32_t>(254 - up) << 23)};
  } else {
    return {1.0f, 1.0f};
  }
}

/// 32 columns of 8 fp32 rows as a lane holds them for two multiplies: row `group`, columns 8 k + 2 member + {0, 1}.
struct RowParts {
  SplitPair pair[4];
  float down;
};

template <class V, class X>
PLUMB_DEVICE RowParts row_parts(X& x, float (&value)[8]) {
  float largest[1] = {0};
  if constexpr (std::is_same_v<V, Fp16>) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float size = value[e] < 0 ? -value[e] : value[e];
      largest[0] = size > largest[0] ? size : largest[0];
    }
#pragma unroll
    for (int mask = 1; mask <= 2; mask *= 2) {
      float other[1] = {largest[0]};
      x.shuffle_xor(other, mask);
      largest[0] = other[0] > largest[0] ? other[0] : largest[0];
    }
  }
  const Scale scale = scale_for<V>(x, largest[0]);
  RowParts out;
  out.down = scale.down;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    out.pair[k] = split<V>(x, scale.up * value[2 * k], scale.up * value[2 * k + 1]);
  }
  return out;
}

/// What one warp sums over its columns. A lane has rows group and group + 8, sources 8 o + 2 member + {0, 1}.
struct TensorSums {
  float product[kOctets][4];  // as D: row group twice, row group + 8 twice
  float squares[kOctets];     // of source 8 o + group, over the lane's columns
};

PLUMB_DEVICE void clear(TensorSums& sums) {
#pragma unroll
  for (int o = 0; o < kOctets; ++o) {
    sums.squares[o] = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums.product[o][i] = 0;
    }
  }
}

/// Where lane `lane` finds the row that it brings to load_matrices for octet o of a ring's slot: matrix k has columns
/// 8 k.. of the warp's 32 from `column` (of the slice) on. Beyond the last source the last: its products are not used.
template <class V>
PLUMB_DEVICE int matrix_word(const RowRing<V>& ring, int threads, int slot, int octet, int column, int lane) {
  const int source = 8 * octet + lane % 8;
  const int last = ring.num_sources - 1;
  return ring.row(threads, slot, source < last ? source : last) + (column + 8 * (lane / 8)) / 2;
}

/// sums += the products over 32 columns of a slot with rows 0..7 (`low`) and 8..15 (`high`).
template <class V, class X>
PLUMB_DEVICE void add_products(X& x, const RowRing<V>& ring, int slot, int column, const RowParts& low,
                               const RowParts& high, bool with_squares, TensorSums& sums) {
  auto memory = ring.memory(x);
  const int lane = x.thread() % kWarp;
#pragma unroll
  for (int o = 0; o < kOctets; ++o) {
    if (8 * o < ring.num_sources) {
      const Words4 rows =
          x.template load_matrices<false>(memory, matrix_word(ring, x.num_threads(), slot, o, column, lane));
      float of_low[4] = {0, 0, 0, 0};
      float of_high[4] = {0, 0, 0, 0};
      float rest[4] = {0, 0, 0, 0};
#pragma unroll
      for (int k = 0; k < 4; k += 2) {  // 16 columns each
        const SplitPair& a = low.pair[k];
        const SplitPair& b = low.pair[k + 1];
        const SplitPair& c = high.pair[k];
        const SplitPair& d = high.pair[k + 1];
        const std::uint32_t sources[2] = {rows.w[k], rows.w[k + 1]};
        const std::uint32_t first[4] = {a.high, a.middle, b.high, b.middle};
        const std::uint32_t second[4] = {c.high, c.middle, d.high, d.middle};
        const std::uint32_t third[4] = {a.low, c.low, b.low, d.low};
        x.template multiply<V>(of_low, first, sources);
        x.template multiply<V>(of_high, second, sources);
        x.template multiply<V>(rest, third, sources);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        sums.product[o][i] += low.down * ((of_low[i] + of_low[i + 2]) + rest[i]);
        sums.product[o][i + 2] += high.down * ((of_high[i] + of_high[i + 2]) + rest[i + 2]);
      }
      if (with_squares) {
        float v[8];
        unpack<V>(x, rows, v);
        sums.squares[o] = dot_columns(x, v, v, sums.squares[o]);
      }
    }
  }
}

/// Bytes of shared memory that the sums of a block need.
constexpr int tensor_sums_bytes(int threads) {
  return threads / kWarp * (kTensorRows * kTensorSources + kTensorSources) * static_cast<int>(sizeof(float));
}

/// Hands the sums of all warps to the block, behind a barrier: [warp][row][source], then [warp][source] of squares.
template <class X>
PLUMB_DEVICE void share_sums(X& x, const TensorSums& sums, bool with_squares, int offset_bytes) {
  const int warps = x.num_threads() / kWarp;
  const int warp = x.thread() / kWarp;
  const int lane = x.thread() % kWarp;
  auto to = x.template shared<float>(offset_bytes, tensor_sums_bytes(x.num_threads()) / 4);
#pragma unroll
  for (int o = 0; o < kOctets; ++o) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to.set((warp * kTensorRows + fragment::d_row(lane, i)) * kTensorSources + 8 * o + fragment::d_column(lane, i),
             sums.product[o][i]);
    }
  }
  if (with_squares) {
    float total[kOctets];
#pragma unroll
    for (int o = 0; o < kOctets; ++o) {
      total[o] = sums.squares[o];
    }
#pragma unroll
    for (int mask = 1; mask <= 2; mask *= 2) {
      float other[kOctets];
#pragma unroll
      for (int o = 0; o < kOctets; ++o) {
        other[o] = total[o];
      }
      x.shuffle_xor(other, mask);
#pragma unroll
      for (int o = 0; o < kOctets; ++o) {
        total[o] += other[o];
      }
    }
    if (fragment::member(lane) == 0) {
#pragma unroll
      for (int o = 0; o < kOctets; ++o) {
        to.set((warps * kTensorRows + warp) * kTensorSources + 8 * o + fragment::group(lane), total[o]);
      }
    }
  }
  x.barrier();
}

/// The block's sum for one row and source, or of squares for row kTensorRows * warps: the warps in order.
template <class X>
PLUMB_DEVICE float shared_sum(X& x, int row, int source, int rows_per_warp, int first_row, int offset_bytes) {
  auto from = x.template shared<float>(offset_bytes, tensor_sums_bytes(x.num_threads()) / 4);
  float total = 0;
  for (int w = 0; w < x.num_threads() / kWarp; ++w) {
    total += from.get((first_row + w * rows_per_warp + row) * kTensorSources + source);
  }
  return total;
}
template <class X>
PLUMB_DEVICE float shared_product(X& x, int row, int source, int offset_bytes) {
  return shared_sum(x, row, source, kTensorRows, 0, offset_bytes);
}
template <class X>
PLUMB_DEVICE float shared_squares(X& x, int source, int offset_bytes) {
  return shared_sum(x, 0, source, 1, x.num_threads() / kWarp * kTensorRows, offset_bytes);
}

/// 16-bit pairs of 32 columns, held as columns 8 k + 2 member + {0, 1}, to the 8 columns from 8 member on; of two rows.
template <class X>
PLUMB_DEVICE void gather_columns(X& x, std::uint32_t (&word)[2][4]) {
  const int member = fragment::member(x.thread() % kWarp);
#pragma unroll
  for (int mask = 1; mask <= 2; mask *= 2) {
    const bool odd = (member & mask) != 0;
    float sent[4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int low = mask == 1 ? 2 * k : k;
        sent[2 * h + k] = x.bits_to_float(odd ? word[h][low] : word[h][low + mask]);
      }
    }
    x.shuffle_xor(sent, mask);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int low = mask == 1 ? 2 * k : k;
        const std::uint32_t got = x.float_to_bits(sent[2 * h + k]);
        word[h][low] = odd ? got : word[h][low];
        word[h][low + mask] = odd ? word[h][low + mask] : got;
      }
    }
  }
}

}  // namespace plumb::cuda_detail
