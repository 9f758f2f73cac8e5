// SPDX-License-Identifier: Apache-2.0
// The baseline in place of the instruction sets of x86-64: on other processors, and where one is enough.
#include "cpu_kernels.hpp"

namespace plumb::kernels_detail {

const CpuKernels& avx2_kernels() { return baseline_kernels(); }
const CpuKernels& avx512_kernels() { return baseline_kernels(); }

}  // namespace plumb::kernels_detail
