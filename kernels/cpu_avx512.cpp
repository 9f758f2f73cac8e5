// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512 (F, BW, DQ, VL) and F16C; run only where the processor has them.
#include "cpu_lanes_avx512.hpp"
#include "cpu_table.hpp"

namespace plumb::kernels_detail {

const CpuKernels& avx512_kernels() { return kCpuKernels<Avx512>; }

}  // namespace plumb::kernels_detail
