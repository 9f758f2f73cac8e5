// SPDX-License-Identifier: Apache-2.0
// storage_operators.hpp (private): the operators of one storage format, each format compiled in a file of its own.
#pragma once

#include "plumb/kernels/cuda_operators.hpp"

namespace plumb::cuda_detail {

/// One per format; operands have been checked.
template <class V>
struct StorageOperators {
  static void inverse_rms(const DepthProblem& problem, const void* block, void* out, const cuda::Execution& execution);
  static void run(const DepthProblem& problem, const cpu::AddOutput& args, const cuda::Execution& execution);
  static void run(const DepthProblem& problem, const cpu::WeightedSum& args, const cuda::Execution& execution);
  static void run(const DepthProblem& problem, const PhaseOneForward& args, const cuda::Execution& execution);
  static void run(const DepthProblem& problem, const AggregateForward& args, const cuda::Execution& execution);
  static void run(const DepthProblem& problem, const MergeForward& args, const cuda::Execution& execution);
  static void run(const DepthProblem& problem, const MergeBackward& args, const cuda::Execution& execution);
  static void run(const DepthProblem& problem, const AggregateBackward& args, const cuda::Execution& execution);
  static void run(const DepthProblem& problem, const InterBlockBackward& args, const cuda::Execution& execution);
  static void run(const DepthProblem& problem, const QueryReduction& args, const cuda::Execution& execution);
};

}  // namespace plumb::cuda_detail
