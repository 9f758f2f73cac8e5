// SPDX-License-Identifier: Apache-2.0
// Checks the operands of an operator and picks its storage format.
#include "plumb/kernels/cuda_operators.hpp"

#include "cuda/storage_operators.hpp"
#include "plumb/kernels/number_formats.hpp"

namespace plumb::cuda {

namespace {

using namespace cuda_detail;

// REQUIRES: not fp64.
void run(const DepthProblem& problem, const Operands& operands, const Execution& execution) {
  if (problem.storage == Storage::bf16) {
    StorageOperators<Bf16>::run(problem, operands, execution);
  } else if (problem.storage == Storage::fp16) {
    StorageOperators<Fp16>::run(problem, operands, execution);
  } else {
    StorageOperators<float>::run(problem, operands, execution);
  }
}

template <class Args>
void check_and_run(const DepthProblem& problem, const Args& args, const Execution& execution) {
  check(problem, args, execution);
  run(problem, args, execution);
}

}  // namespace

void inverse_rms(const DepthProblem& problem, const void* block, void* inverse_rms, const Execution& execution) {
  check_and_run(problem, InverseRms{block, inverse_rms}, execution);
}
void add_output(const DepthProblem& problem, const cpu::AddOutput& args, const Execution& execution) {
  check_and_run(problem, args, execution);
}
void weighted_sum(const DepthProblem& problem, const cpu::WeightedSum& args, const Execution& execution) {
  check_and_run(problem, args, execution);
}
void phase_one_forward(const DepthProblem& problem, const PhaseOneForward& args, const Execution& execution) {
  check_and_run(problem, args, execution);
}
void aggregate_forward(const DepthProblem& problem, const AggregateForward& args, const Execution& execution) {
  check_and_run(problem, args, execution);
}
void merge_forward(const DepthProblem& problem, const MergeForward& args, const Execution& execution) {
  check_and_run(problem, args, execution);
}
void merge_backward(const DepthProblem& problem, const MergeBackward& args, const Execution& execution) {
  check_and_run(problem, args, execution);
}
void aggregate_backward(const DepthProblem& problem, const AggregateBackward& args, const Execution& execution) {
  check_and_run(problem, args, execution);
}
void inter_block_backward(const DepthProblem& problem, const InterBlockBackward& args, const Execution& execution) {
  check_and_run(problem, args, execution);
}
void reduce_query_gradient(const DepthProblem& problem, const QueryReduction& args, const Execution& execution) {
  check_and_run(problem, args, execution);
}

}  // namespace plumb::cuda
