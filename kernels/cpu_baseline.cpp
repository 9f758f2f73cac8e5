// SPDX-License-Identifier: Apache-2.0
#include "cpu_lanes_baseline.hpp"
#include "cpu_table.hpp"

namespace plumb::kernels_detail {

const CpuKernels& baseline_kernels() { return kCpuKernels<Baseline>; }

}  // namespace plumb::kernels_detail
