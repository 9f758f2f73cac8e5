// SPDX-License-Identifier: Apache-2.0
// storage_operators.hpp (private): the operators of one storage format, each format compiled in a file of its own.
#pragma once

#include <variant>

#include "cuda/operand_rules.hpp"

namespace plumb::cuda_detail {

/// The operands of a call say which operator it is.
using Operands = std::variant<InverseRms, cpu::AddOutput, cpu::WeightedSum, PhaseOneForward, AggregateForward,
                              MergeForward, MergeBackward, AggregateBackward, InterBlockBackward, QueryReduction>;

/// V: float, Bf16 or Fp16. Operands have been checked.
template <class V>
struct StorageOperators {
  static void run(const DepthProblem& problem, const Operands& operands, const cuda::Execution& execution);
};

}  // namespace plumb::cuda_detail
