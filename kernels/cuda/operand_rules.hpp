// SPDX-License-Identifier: Apache-2.0
// operand_rules.hpp (private): what the GPU operators take. Each function throws OperandError naming the argument, and
// reads the host's lists only.
#pragma once

#include "plumb/kernels/cuda_operators.hpp"

namespace plumb::cuda_detail {

void check_inverse_rms(const DepthProblem& problem, const void* block, const void* inverse_rms);
void check(const DepthProblem& problem, const cpu::AddOutput& args);
void check(const DepthProblem& problem, const cpu::WeightedSum& args);
void check(const DepthProblem& problem, const PhaseOneForward& args, const cuda::Execution& execution);
void check(const DepthProblem& problem, const AggregateForward& args);
void check(const DepthProblem& problem, const MergeForward& args);
void check(const DepthProblem& problem, const MergeBackward& args, const cuda::Execution& execution);
void check(const DepthProblem& problem, const AggregateBackward& args, const cuda::Execution& execution);
void check(const DepthProblem& problem, const InterBlockBackward& args, const cuda::Execution& execution);
void check(const DepthProblem& problem, const QueryReduction& args);

}  // namespace plumb::cuda_detail
