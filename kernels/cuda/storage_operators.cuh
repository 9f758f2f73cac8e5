// SPDX-License-Identifier: Apache-2.0
// storage_operators.cuh (private): bodies of storage_operators.hpp, for the one file per format that names it.
#pragma once

#include "cuda/device_launch.cuh"
#include "cuda/operators.hpp"
#include "cuda/storage_operators.hpp"

namespace plumb::cuda_detail {

template <class V>
void StorageOperators<V>::inverse_rms(const DepthProblem& problem, const void* block, void* out,
                                      const cuda::Execution& execution) {
  DeviceLaunch launch(execution.stream);
  Operators<V>::inverse_rms(launch, problem, block, out);
}

template <class V>
void StorageOperators<V>::run(const DepthProblem& problem, const cpu::AddOutput& args,
                              const cuda::Execution& execution) {
  DeviceLaunch launch(execution.stream);
  Operators<V>::add_output(launch, problem, args);
}

template <class V>
void StorageOperators<V>::run(const DepthProblem& problem, const cpu::WeightedSum& args,
                              const cuda::Execution& execution) {
  DeviceLaunch launch(execution.stream);
  Operators<V>::weighted_sum(launch, problem, args);
}

template <class V>
void StorageOperators<V>::run(const DepthProblem& problem, const PhaseOneForward& args,
                              const cuda::Execution& execution) {
  DeviceLaunch launch(execution.stream);
  Operators<V>::phase_one(launch, problem, args, execution.workspace);
}

template <class V>
void StorageOperators<V>::run(const DepthProblem& problem, const AggregateForward& args,
                              const cuda::Execution& execution) {
  DeviceLaunch launch(execution.stream);
  Operators<V>::aggregate(launch, problem, args);
}

template <class V>
void StorageOperators<V>::run(const DepthProblem& problem, const MergeForward& args, const cuda::Execution& execution) {
  DeviceLaunch launch(execution.stream);
  Operators<V>::merge(launch, problem, args);
}

template <class V>
void StorageOperators<V>::run(const DepthProblem& problem, const MergeBackward& args,
                              const cuda::Execution& execution) {
  DeviceLaunch launch(execution.stream);
  Operators<V>::merge_backward(launch, problem, args, execution.workspace);
}

template <class V>
void StorageOperators<V>::run(const DepthProblem& problem, const AggregateBackward& args,
                              const cuda::Execution& execution) {
  DeviceLaunch launch(execution.stream);
  Operators<V>::aggregate_backward(launch, problem, args, execution.workspace);
}

template <class V>
void StorageOperators<V>::run(const DepthProblem& problem, const InterBlockBackward& args,
                              const cuda::Execution& execution) {
  DeviceLaunch launch(execution.stream);
  Operators<V>::inter_block_backward(launch, problem, args, execution.workspace);
}

template <class V>
void StorageOperators<V>::run(const DepthProblem& problem, const QueryReduction& args,
                              const cuda::Execution& execution) {
  DeviceLaunch launch(execution.stream);
  Operators<V>::reduce_query_gradient(launch, problem, args);
}

}  // namespace plumb::cuda_detail
