// SPDX-License-Identifier: Apache-2.0
// On other processors the baseline stands in for the instruction sets of x86-64.
#include "cpu_kernels.hpp"

namespace plumb::kernels_detail {

const CpuKernels& avx2_kernels() { return baseline_kernels(); }
const CpuKernels& avx512_kernels() { return baseline_kernels(); }

}  // namespace plumb::kernels_detail
