// SPDX-License-Identifier: Apache-2.0
// Checks the operands of an operator and picks its storage format.
#include "plumb/kernels/cuda_operators.hpp"

#include "cuda/operand_rules.hpp"
#include "cuda/storage_operators.hpp"
#include "plumb/kernels/number_formats.hpp"

namespace plumb::cuda {

namespace {

using namespace cuda_detail;

// REQUIRES: not fp64.
template <class Use>
void with_storage(Storage storage, const Use& use) {
  if (storage == Storage::bf16) {
    use.template operator()<Bf16>();
  } else if (storage == Storage::fp16) {
    use.template operator()<Fp16>();
  } else {
    use.template operator()<float>();
  }
}

template <class Args>
void run(const DepthProblem& problem, const Args& args, const Execution& execution) {
  with_storage(problem.storage, [&]<class V>() { StorageOperators<V>::run(problem, args, execution); });
}

}  // namespace

void inverse_rms(const DepthProblem& problem, const void* block, void* inverse_rms, const Execution& execution) {
  check_inverse_rms(problem, block, inverse_rms);
  with_storage(problem.storage,
               [&]<class V>() { StorageOperators<V>::inverse_rms(problem, block, inverse_rms, execution); });
}

void add_output(const DepthProblem& problem, const cpu::AddOutput& args, const Execution& execution) {
  check(problem, args);
  run(problem, args, execution);
}

void weighted_sum(const DepthProblem& problem, const cpu::WeightedSum& args, const Execution& execution) {
  check(problem, args);
  run(problem, args, execution);
}

void phase_one_forward(const DepthProblem& problem, const PhaseOneForward& args, const Execution& execution) {
  check(problem, args, execution);
  run(problem, args, execution);
}

void aggregate_forward(const DepthProblem& problem, const AggregateForward& args, const Execution& execution) {
  check(problem, args);
  run(problem, args, execution);
}

void merge_forward(const DepthProblem& problem, const MergeForward& args, const Execution& execution) {
  check(problem, args);
  run(problem, args, execution);
}

void merge_backward(const DepthProblem& problem, const MergeBackward& args, const Execution& execution) {
  check(problem, args, execution);
  run(problem, args, execution);
}

void aggregate_backward(const DepthProblem& problem, const AggregateBackward& args, const Execution& execution) {
  check(problem, args, execution);
  run(problem, args, execution);
}

void inter_block_backward(const DepthProblem& problem, const InterBlockBackward& args, const Execution& execution) {
  check(problem, args, execution);
  run(problem, args, execution);
}

void reduce_query_gradient(const DepthProblem& problem, const QueryReduction& args, const Execution& execution) {
  check(problem, args);
  run(problem, args, execution);
}

}  // namespace plumb::cuda
