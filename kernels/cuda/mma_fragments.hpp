// SPDX-License-Identifier: Apache-2.0
// mma_fragments.hpp (private): which element of a matrix each lane of a warp holds. The one place that says so: the
// kernels for tensor cores are written to it, the simulated block multiplies by it.
//
// From the PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" (9.7.14.5.8 in version 9.0) and
// "ldmatrix" (9.7.14.5.15): with group = lane / 4 and member = lane % 4, register pairs being two elements, low first,
//   A 16 x 16: a0 a1 a4 a5 in row group, the others in row group + 8; columns 2 member + {0, 1}, + 8 for a4..a7
//   B 16 x 8:  rows 2 member + {0, 1}, + 8 for b2 b3; column group
//   D 16 x 8:  d0 d1 in row group, d2 d3 in row group + 8; columns 2 member + {0, 1}
//   ldmatrix:  of each 8 x 8 matrix a lane gets row group, columns 2 member + {0, 1}; .trans swaps row and column
#pragma once

namespace plumb::cuda_detail::fragment {

constexpr int group(int lane) { return lane / 4; }
constexpr int member(int lane) { return lane % 4; }

constexpr int a_row(int lane, int i) { return group(lane) + (i % 4 < 2 ? 0 : 8); }
constexpr int a_column(int lane, int i) { return 2 * member(lane) + i % 2 + (i < 4 ? 0 : 8); }
constexpr int b_row(int lane, int i) { return 2 * member(lane) + i % 2 + (i < 2 ? 0 : 8); }
constexpr int b_column(int lane) { return group(lane); }
constexpr int d_row(int lane, int i) { return group(lane) + (i < 2 ? 0 : 8); }
constexpr int d_column(int lane, int i) { return 2 * member(lane) + i % 2; }

constexpr int matrix_row(int lane) { return group(lane); }
constexpr int matrix_column(int lane, int half) { return 2 * member(lane) + half; }

}  // namespace plumb::cuda_detail::fragment
