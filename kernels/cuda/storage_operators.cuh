// SPDX-License-Identifier: Apache-2.0
// storage_operators.cuh (private): body of storage_operators.hpp, for the one file per format that names it.
#pragma once

#include "cuda/device_launch.cuh"
#include "cuda/operators.hpp"
#include "cuda/storage_operators.hpp"

namespace plumb::cuda_detail {

/// Hands each kind of operands to its operator.
template <class V>
struct Dispatch {
  const DepthProblem& problem;
  const cuda::Execution& execution;
  DeviceLaunch launch{execution.stream};

  using Of = Operators<V>;
  void operator()(const InverseRms& args) { Of::inverse_rms(launch, problem, args.block, args.inverse_rms); }
  void operator()(const cpu::AddOutput& args) { Of::add_output(launch, problem, args); }
  void operator()(const cpu::WeightedSum& args) { Of::weighted_sum(launch, problem, args); }
  void operator()(const PhaseOneForward& args) {
    Of::phase_one(launch, problem, args, execution.workspace, execution.tensor_cores);
  }
  void operator()(const AggregateForward& args) { Of::aggregate(launch, problem, args); }
  void operator()(const MergeForward& args) { Of::merge(launch, problem, args); }
  void operator()(const MergeBackward& args) { Of::merge_backward(launch, problem, args, execution.workspace); }
  void operator()(const AggregateBackward& args) { Of::aggregate_backward(launch, problem, args, execution.workspace); }
  void operator()(const InterBlockBackward& args) {
    Of::inter_block_backward(launch, problem, args, execution.workspace, execution.tensor_cores);
  }
  void operator()(const QueryReduction& args) { Of::reduce_query_gradient(launch, problem, args); }
};

template <class V>
void StorageOperators<V>::run(const DepthProblem& problem, const Operands& operands, const cuda::Execution& execution) {
  std::visit(Dispatch<V>{problem, execution}, operands);
}

}  // namespace plumb::cuda_detail
