// SPDX-License-Identifier: Apache-2.0
// cpu_operators.hpp: the operators of depth attention on the CPU, in every storage format, vectorised and threaded.
//
// Operands and formulas are those of depth_attention.hpp and depth_attention_backward.hpp. fp32, bf16 and fp16 are
// computed in fp32 and rounded once when stored, to nearest even; fp64 goes through the reference, on one thread.
// Bits depend on the operands alone: not on instruction set, threads, tiles, position of a token in its batch, or on
// which other queries share the call. Gradients of queries are summed within runs of kTokensPerRun tokens.
// Errors: OperandError naming the argument, before anything is written: a null or misaligned pointer (values need the
// alignment of an element), an output that overlaps an operand (unless a field says it may), no tokens, no sources, too
// many of them, a workspace that is missing, misaligned or too small. Nothing is allocated (fp64 may).
// Bytes moved per operator are in docs/kernels.md. Ownership and threads: as in cpu_execution.hpp.
#pragma once

#include "plumb/kernels/cpu_execution.hpp"
#include "plumb/kernels/depth_attention.hpp"
#include "plumb/kernels/depth_attention_backward.hpp"
#include "plumb/kernels/operand_error.hpp"

namespace plumb::cpu {

void inverse_rms(const DepthProblem& problem, const void* block, void* inverse_rms, const Execution& execution);

/// out = partial + output, rounded once; a null partial opens the block. With inverse_rms the block is closed here: its
/// 1/rms is taken while its rows are near.
struct AddOutput {
  const void* partial = nullptr;
  const void* output = nullptr;
  void* out = nullptr;          ///< may be partial or output itself.
  void* inverse_rms = nullptr;  ///< [tokens] of out; null if not wanted.
};
void add_output(const DepthProblem& problem, const AddOutput& args, const Execution& execution);

/// out[g][t] = sum_i weights[t, i, g] sources[i][t]: the second half of phase one, for weights known already.
struct WeightedSum {
  std::span<const void* const> sources;
  const void* weights = nullptr;  ///< [tokens, num_sources, num_outputs] in gradient_storage
  std::span<void* const> out;
};
void weighted_sum(const DepthProblem& problem, const WeightedSum& args, const Execution& execution);

void phase_one_forward(const DepthProblem& problem, const PhaseOneForward& args, const Execution& execution);
void aggregate_forward(const DepthProblem& problem, const AggregateForward& args, const Execution& execution);
void merge_forward(const DepthProblem& problem, const MergeForward& args, const Execution& execution);

void merge_backward(const DepthProblem& problem, const MergeBackward& args, const Execution& execution);
void aggregate_backward(const DepthProblem& problem, const AggregateBackward& args, const Execution& execution);
void inter_block_backward(const DepthProblem& problem, const InterBlockBackward& args, const Execution& execution);

/// Depends on gradients only, so it is the reference's under another name.
void reduce_query_gradient(const DepthProblem& problem, const QueryReduction& args);

}  // namespace plumb::cpu
