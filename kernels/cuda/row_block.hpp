// SPDX-License-Identifier: Apache-2.0
// row_block.hpp (private): a block of threads working on rows: columns of a thread, loads and stores, sums.
//
// Thread k owns columns [8 k, 8 k + 8) of a row, then those 8 * threads further on, and so on. Which columns a thread
// owns, and the order of every sum, depends on the width alone.
// kVector: width % 8 == 0 and all rows are 16-byte aligned. Otherwise elements are accessed one by one; same bits.
#pragma once

#include "cuda/execution.hpp"
#include "plumb/kernels/number_formats.hpp"

namespace plumb::cuda_detail {

inline constexpr int kColumns = 8;
inline constexpr int kMostRowThreads = 256;

/// Threads of a block that works on rows of this width.
constexpr int row_threads(std::int64_t width) {
  const std::int64_t warps = (width + kColumns * kWarp - 1) / (kColumns * kWarp);
  return static_cast<int>(warps * kWarp < kMostRowThreads ? warps * kWarp : kMostRowThreads);
}

/// Elements of one 16-byte access: 4 of fp32, 8 of the others.
template <class V, class X>
PLUMB_DEVICE void unpack(X& x, const Words4& words, float* out) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if constexpr (sizeof(V) == 4) {
      out[e] = x.bits_to_float(words.w[e]);
    } else {
      out[2 * e] = x.widen(V{static_cast<std::uint16_t>(words.w[e] & 0xffffu)});
      out[2 * e + 1] = x.widen(V{static_cast<std::uint16_t>(words.w[e] >> 16)});
    }
  }
}

template <bool kVector, class X, class V>
PLUMB_DEVICE void load_columns(X& x, const V* row, std::int64_t column, std::int64_t width, float (&out)[kColumns]) {
  if constexpr (!kVector) {
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      out[e] = column + e < width ? x.widen(row[column + e]) : 0.0f;
    }
  } else {
    constexpr int kPer16 = 16 / sizeof(V);
#pragma unroll
    for (int e = 0; e < kColumns; e += kPer16) {
      unpack<V>(x, x.load16(row + column + e), out + e);
    }
  }
}

template <bool kVector, class X, class V>
PLUMB_DEVICE void store_columns(X& x, V* row, std::int64_t column, std::int64_t width, const float (&in)[kColumns]) {
  if constexpr (!kVector) {
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      if (column + e < width) {
        row[column + e] = x.template narrow<V>(in[e]);
      }
    }
  } else if constexpr (sizeof(V) == 4) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Words4 words;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        words.w[e] = x.float_to_bits(in[4 * half + e]);
      }
      x.store16(row + column + 4 * half, words);
    }
  } else {
    Words4 words;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      words.w[e] = static_cast<std::uint32_t>(x.template narrow<V>(in[2 * e]).bits) |
                   (static_cast<std::uint32_t>(x.template narrow<V>(in[2 * e + 1]).bits) << 16);
    }
    x.store16(row + column, words);
  }
}

/// sum + a . b over the columns of a thread, in order.
template <class X>
PLUMB_DEVICE float dot_columns(X& x, const float (&a)[kColumns], const float (&b)[kColumns], float sum) {
#pragma unroll
  for (int e = 0; e < kColumns; ++e) {
    sum = x.fma(a[e], b[e], sum);
  }
  return sum;
}

/// Bytes of shared memory that block_sum of N values needs.
constexpr int block_sum_bytes(int threads, int num_values) {
  return threads / kWarp * num_values * static_cast<int>(sizeof(float));
}

/// Replaces each value by its sum over the block: a butterfly in each warp, then the warps in order. Every thread must
/// take part. The shared memory at `offset_bytes` may be used again right after the next barrier.
template <int N, class X>
PLUMB_DEVICE void block_sum(X& x, float (&value)[N], int offset_bytes) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    float other[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      other[k] = value[k];
    }
    x.shuffle_xor(other, mask);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      value[k] += other[k];
    }
  }
  const int warps = x.num_threads() / kWarp;
  auto sums = x.template shared<float>(offset_bytes, warps * N);
  if (x.thread() % kWarp == 0) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      sums.set(x.thread() / kWarp * N + k, value[k]);
    }
  }
  x.barrier();
#pragma unroll
  for (int k = 0; k < N; ++k) {
    float sum = 0;
    for (int w = 0; w < warps; ++w) {
      sum += sums.get(w * N + k);
    }
    value[k] = sum;
  }
}

/// One step up: of its first N values a lane keeps the lower or the upper half, and adds its partner's.
template <int N, int kMask, class X, int kSize>
PLUMB_DEVICE void halve(X& x, float (&value)[kSize], int& begin, int& end) {
  constexpr int kHalf = (N + 1) / 2;
  const bool upper = (x.thread() & kMask) != 0;
  float other[kHalf];
#pragma unroll
  for (int k = 0; k < kHalf; ++k) {
    const float high = k + kHalf < N ? value[k + kHalf < N ? k + kHalf : 0] : 0.0f;
    other[k] = upper ? value[k] : high;
    value[k] = upper ? high : value[k];
  }
  x.shuffle_xor(other, kMask);
#pragma unroll
  for (int k = 0; k < kHalf; ++k) {
    value[k] += other[k];
  }
  begin = upper ? begin + kHalf : begin;
  end = !upper && begin + kHalf < end ? begin + kHalf : end;
  if constexpr (kMask > 1) {
    halve<kHalf, kMask / 2>(x, value, begin, end);
  }
}

/// The same sums, bit for bit, where a thread has many: lanes split the values between them on the way up, so that
/// there are about as many exchanges as values. Leaves value k of warp w at element w N + k of the shared memory at
/// `offset_bytes`, behind a barrier; the warps have yet to be added up, in order.
template <int N, class X>
PLUMB_DEVICE void warp_sums(X& x, float (&value)[N], int offset_bytes) {
  int begin = 0;  // the values this lane still has
  int end = N;
  halve<N, kWarp / 2>(x, value, begin, end);
  constexpr int kLeft = (N + kWarp - 1) / kWarp;
  auto sums = x.template shared<float>(offset_bytes, x.num_threads() / kWarp * N);
#pragma unroll
  for (int k = 0; k < kLeft; ++k) {
    if (begin + k < end) {
      sums.set(x.thread() / kWarp * N + begin + k, value[k]);
    }
  }
  x.barrier();
}

}  // namespace plumb::cuda_detail
