// SPDX-License-Identifier: Apache-2.0
// cpu_table.hpp (private): all kernels for one instruction set, included by the file that is compiled for it.
#pragma once

#include "cpu_inter_block.hpp"

namespace plumb::kernels_detail {

template <class L, class V>
constexpr StorageKernels storage_kernels() {
  return {.inverse_rms = inverse_rms_task<L, V>,
          .add_output = add_output_task<L, V>,
          .weighted_sum = weighted_sum_task<L, V>,
          .phase_one = {phase_one_task<L, V, V>, phase_one_task<L, V, float>},
          .mix = {mix_task<L, V, V>, mix_task<L, V, float>},
          .merge_backward = merge_backward_task<L, V>,
          .aggregate_backward = aggregate_backward_task<L, V>,
          .inter_block_backward = inter_block_task<L, V>};
}

template <class L>
constexpr CpuKernels kCpuKernels = {storage_kernels<L, float>(), storage_kernels<L, Bf16>(),
                                    storage_kernels<L, Fp16>()};

}  // namespace plumb::kernels_detail
