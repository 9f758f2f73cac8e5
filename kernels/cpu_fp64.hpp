// SPDX-License-Identifier: Apache-2.0
// cpu_fp64.hpp (private): what the fast operators offer beyond the reference, composed from it for fp64.
#pragma once

#include "plumb/kernels/cpu_operators.hpp"

namespace plumb::kernels_detail {

void phase_one_fp64(const DepthProblem& problem, const PhaseOneForward& args);
void aggregate_fp64(const DepthProblem& problem, const AggregateForward& args);
void merge_fp64(const DepthProblem& problem, const MergeForward& args);
void merge_backward_fp64(const DepthProblem& problem, const MergeBackward& args);
void add_output_fp64(const DepthProblem& problem, const cpu::AddOutput& args);
void weighted_sum_fp64(const DepthProblem& problem, const cpu::WeightedSum& args);

}  // namespace plumb::kernels_detail
