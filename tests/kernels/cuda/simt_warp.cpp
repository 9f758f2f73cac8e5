// SPDX-License-Identifier: Apache-2.0
// What a warp does as one on a simulated block. The maps are those of mma_fragments.hpp.
#include <algorithm>
#include <cmath>

#include "cuda/mma_fragments.hpp"
#include "kernels/cuda/simt.hpp"

namespace plumb::testing::simt {

namespace {

using cuda_detail::kWarp;
namespace fragment = cuda_detail::fragment;

std::uint16_t half_of(std::uint32_t word, int half) { return static_cast<std::uint16_t>(word >> (16 * half)); }

// To zero: no GPU promises better of the sums in its tensor cores, so a kernel must keep its bounds with that.
float truncated(double exact) {
  const float nearest = static_cast<float>(exact);
  return std::isfinite(nearest) && std::abs(static_cast<double>(nearest)) > std::abs(exact)
             ? std::nextafter(nearest, 0.0f)
             : nearest;
}

}  // namespace

void Machine::act_as_one(int first) {
  switch (act_of(first).kind) {
    case WarpAct::shuffle:
      return shuffle(first);
    case WarpAct::matrices:
      return load_matrices(first);
    case WarpAct::multiply:
      return multiply(first);
    case WarpAct::barrier:
    case WarpAct::none:
      break;
  }
  memory_.warp_barrier(first / kWarp);
}

void Machine::shuffle(int first) {
  const int mask = act_of(first).variant;
  if (mask < 0 || mask >= kWarp) {
    fail(FaultKind::divergent_warp, first, act_of(first).site, "shuffles with a lane outside the warp");
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    if ((lane ^ mask) > lane) {
      const WarpAct& own = act_of(first + lane);
      std::swap_ranges(own.values, own.values + own.count, act_of(first + (lane ^ mask)).values);
    }
  }
}

// Lane 8 m + r brings the address of row r of matrix m: 8 elements of 16 bits.
void Machine::load_matrices(int first) {
  const bool transposed = act_of(first).variant != 0;
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int m = 0; m < 4; ++m) {
      std::uint32_t word = 0;
      for (int half = 0; half < 2; ++half) {
        int row = fragment::matrix_row(lane);
        int column = fragment::matrix_column(lane, half);
        if (transposed) {
          std::swap(row, column);
        }
        const std::int64_t from = act_of(first + 8 * m + row).row + column / 2;
        const std::uint32_t bits = half_of(memory_.read(first + lane, from, act_of(first).site), column % 2);
        word |= bits << (16 * half);
      }
      act_of(first + lane).out[m] = word;
    }
  }
}

void Machine::multiply(int first) {
  const bool bf16 = act_of(first).variant != 0;
  const auto wide = [bf16](std::uint16_t bits) {
    return static_cast<double>(bf16 ? to_float(Bf16{bits}) : to_float(Fp16{bits}));
  };
  double a[16][16];
  double b[16][8];
  for (int lane = 0; lane < kWarp; ++lane) {
    const WarpAct& own = act_of(first + lane);
    for (int i = 0; i < 8; ++i) {
      a[fragment::a_row(lane, i)][fragment::a_column(lane, i)] = wide(half_of(own.a[i / 2], i % 2));
    }
    for (int i = 0; i < 4; ++i) {
      b[fragment::b_row(lane, i)][fragment::b_column(lane)] = wide(half_of(own.b[i / 2], i % 2));
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int i = 0; i < 4; ++i) {
      float& d = act_of(first + lane).values[i];
      double sum = 0;
      for (int k = 0; k < 16; ++k) {
        sum += a[fragment::d_row(lane, i)][k] * b[k][fragment::d_column(lane, i)];
      }
      d = truncated(static_cast<double>(d) + sum);
    }
  }
}

}  // namespace plumb::testing::simt
