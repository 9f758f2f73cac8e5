// SPDX-License-Identifier: Apache-2.0
// workspace.hpp (private): memory that lives only during one call of a block machine.
#pragma once

#include <vector>

#include "buffer.hpp"
#include "plumb/kernels/block_machine.hpp"
#include "plumb/kernels/cpu_operators.hpp"

namespace plumb {

/// Buffers are rows of [tokens, width] (values or gradients), of [tokens] or of [width] statistics, as noted.
class DepthWorkspace {
 public:
  explicit DepthWorkspace(int num_threads) : threads(num_threads) {}

  cpu::CpuThreads threads;
  kernels_detail::Buffer scratch;  // of the operators
  // Both directions.
  kernels_detail::Buffer folded;  // [width] per aggregate of the chunk
  kernels_detail::Buffer h;       // one row of values: what a sublayer reads, where it does not take the place of an o
  kernels_detail::Buffer f;       // one row of values: what it writes
  kernels_detail::Buffer o;       // a row per query of a batch: phase one, values forward, fp32 backward
  kernels_detail::Buffer lse_o;   // [tokens] per query of a batch
  // Forward that keeps nothing.
  kernels_detail::Buffer inverse_rms;  // [tokens] per block read
  // Backward.
  kernels_detail::Buffer grad_h;        // a row of gradients per sublayer of a part
  kernels_detail::Buffer grad_partial;  // one row of gradients
  kernels_detail::Buffer delta;         // [tokens] per sublayer of a part
  kernels_detail::Buffer query_sums;    // [num_token_runs, width] per sublayer of a part
  // Operand lists.
  std::vector<const void*> values;
  std::vector<BlockGradient> gradients;
  std::vector<DepthSource> sources;
  std::vector<PhaseOneQuery> queries;
  std::vector<void*> inverse_rms_out;
  std::vector<DepthSourceGradient> source_gradients;
  std::vector<InterBlockReader> readers;
};

}  // namespace plumb
