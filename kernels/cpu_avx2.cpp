// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX2, FMA and F16C; run only where the processor has them.
#include "cpu_lanes_avx2.hpp"
#include "cpu_table.hpp"

namespace plumb::kernels_detail {

const CpuKernels& avx2_kernels() { return kCpuKernels<Avx2>; }

}  // namespace plumb::kernels_detail
