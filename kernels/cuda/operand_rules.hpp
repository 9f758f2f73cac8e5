// SPDX-License-Identifier: Apache-2.0
// operand_rules.hpp (private): what the GPU operators take. Each function throws OperandError naming the argument, and
// reads the host's lists only.
#pragma once

#include "plumb/kernels/cuda_operators.hpp"

namespace plumb::cuda_detail {

/// Of the operator that has no operands of its own in the public headers.
struct InverseRms {
  const void* block;
  void* inverse_rms;
};

void check(const DepthProblem& problem, const InverseRms& args, const cuda::Execution& execution = {});
void check(const DepthProblem& problem, const cpu::AddOutput& args, const cuda::Execution& execution = {});
void check(const DepthProblem& problem, const cpu::WeightedSum& args, const cuda::Execution& execution = {});
void check(const DepthProblem& problem, const PhaseOneForward& args, const cuda::Execution& execution);
void check(const DepthProblem& problem, const AggregateForward& args, const cuda::Execution& execution = {});
void check(const DepthProblem& problem, const MergeForward& args, const cuda::Execution& execution = {});
void check(const DepthProblem& problem, const MergeBackward& args, const cuda::Execution& execution);
void check(const DepthProblem& problem, const AggregateBackward& args, const cuda::Execution& execution);
void check(const DepthProblem& problem, const InterBlockBackward& args, const cuda::Execution& execution);
void check(const DepthProblem& problem, const QueryReduction& args, const cuda::Execution& execution = {});

}  // namespace plumb::cuda_detail
