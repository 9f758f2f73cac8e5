// SPDX-License-Identifier: Apache-2.0
// cuda_operators.hpp: the operators of depth attention on a GPU. Only where plumbline was built with CUDA.
//
// Operands, formulas and rounding are those of cpu_operators.hpp; fp64 is refused. All pointers are the device's, the
// lists that hold them the host's. Rows that are 16-byte aligned with width % 8 == 0 are read 16 bytes at a time;
// others give the same bits, slowly. Bits depend on the operands alone: not on the GPU, the grid, or a token's place;
// they are NOT those of the CPU, whose sums have another order. Calls only launch kernels on the stream: they do not
// wait, allocate or synchronise, and may be captured in a graph. The workspace belongs to the call until the stream has
// passed it. Ownership: the caller's. Threads: as the stream's. Errors: OperandError naming the argument, before
// anything is launched; CudaError for what the runtime refuses.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "plumb/kernels/cpu_operators.hpp"

struct CUstream_st;  // cudaStream_t points to one

namespace plumb::cuda {

/// what(): file, line, call and the runtime's own words. The runtime's memory of the error has been cleared; an error
/// that the device itself cannot leave (an illegal access, say) comes back at the next call.
class CudaError : public std::runtime_error {
 public:
  CudaError(int code, const std::string& text) : std::runtime_error(text), code_(code) {}
  int code() const { return code_; }  ///< cudaError_t

 private:
  int code_;
};

struct Execution {
  void* workspace = nullptr;        ///< on the device, aligned to 256 bytes; contents do not matter.
  std::size_t workspace_bytes = 0;  ///< at least workspace_bytes() of the call.
  CUstream_st* stream = nullptr;    ///< null: the default stream.
  /// Lets phase one and the batched backward use tensor cores: for bf16 and fp16 (but not an fp32 mixture), aligned
  /// rows and at most 16 sources; all else is done as without. Within the same bounds, with other bits. No GPU has run
  /// it yet.
  bool tensor_cores = false;
};

/// What one call may have at most: pointer lists travel with the launch.
inline constexpr int kMaxSources = 128;
inline constexpr int kMaxQueries = 4096;

/// Enough for every operator with up to so many sources and queries or readers. 4 (n (2 min(G, 8) + 2) + 1) bytes per
/// token, and a little. Throws OperandError for numbers outside the limits.
std::size_t workspace_bytes(const DepthProblem& problem, int num_sources, int num_queries);

void inverse_rms(const DepthProblem& problem, const void* block, void* inverse_rms, const Execution& execution);
void add_output(const DepthProblem& problem, const cpu::AddOutput& args, const Execution& execution);
void weighted_sum(const DepthProblem& problem, const cpu::WeightedSum& args, const Execution& execution);

void phase_one_forward(const DepthProblem& problem, const PhaseOneForward& args, const Execution& execution);
void aggregate_forward(const DepthProblem& problem, const AggregateForward& args, const Execution& execution);
void merge_forward(const DepthProblem& problem, const MergeForward& args, const Execution& execution);

void merge_backward(const DepthProblem& problem, const MergeBackward& args, const Execution& execution);
void aggregate_backward(const DepthProblem& problem, const AggregateBackward& args, const Execution& execution);
void inter_block_backward(const DepthProblem& problem, const InterBlockBackward& args, const Execution& execution);
void reduce_query_gradient(const DepthProblem& problem, const QueryReduction& args, const Execution& execution);

}  // namespace plumb::cuda
