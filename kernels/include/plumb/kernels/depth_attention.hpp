// SPDX-License-Identifier: Apache-2.0
// depth_attention.hpp: forward operators of depth attention, direct and in two phases: operands and the reference.
//
// The functions here are the plain loops in fp32 and fp64 that everything faster is held against; cpu_operators.hpp
// runs the same operands at the speed of the machine, in every storage format. Per token: sources v_i[d], folded query
// q = w*g; r_i = (|v_i|^2/d + eps)^(-1/2), s_i = r_i (q . v_i), Lambda = log sum_i exp(s_i), p_i = exp(s_i - Lambda), h
// = sum_i p_i v_i (raw values). There is no 1/sqrt(d). They are NOT differentiable objects: the backward is
// depth_attention_backward.hpp, the state is the block machine's. Shapes: values [tokens, width] in the storage format,
// sources as a list of pointers and never stacked; queries [width] and statistics [tokens] in gradient_storage (fp32;
// fp64 under fp64), in which all sums and exponentials are taken. Every output is fully overwritten. Order of sums is
// fixed per token: the bits depend on nothing but the operands. Ownership: the caller's. Threads: operators share
// nothing. REQUIRES: non-null pointers unless a field says otherwise.
#pragma once

#include <cstdint>
#include <span>

#include "plumb/kernels/storage.hpp"

namespace plumb {

/// What the operands of one call have in common.
struct DepthProblem {
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  Storage storage = Storage::fp32;
  double eps = 1e-6;
};

/// One source. A null inverse_rms is computed on the fly (the open partial sum); same bits either way.
struct DepthSource {
  const void* value = nullptr;        ///< [tokens, width]
  const void* inverse_rms = nullptr;  ///< [tokens] r_i
};

/// r[t] = (|v_t|^2/width + eps)^(-1/2), once when a block closes; shared by all its readers and by the backward.
void inverse_rms(const DepthProblem& problem, const void* block, void* inverse_rms);

/// q = w*g, all [width] in gradient_storage.
void fold_query(const DepthProblem& problem, const void* query, const void* gain, void* folded);

/// out = partial + output, rounded once to storage; a null partial opens the block: out = output. out may alias either.
void add_output(const DepthProblem& problem, const void* partial, const void* output, void* out);

/// RMSNorm of what an aggregate or merge writes, h (|h|^2/width + eps)^(-1/2) gain, applied before rounding. A null
/// gain means none. The reference has none.
struct OutputNorm {
  const void* gain = nullptr;  ///< [width] in gradient_storage
  double eps = 1e-6;
};

/// The definition, one query over all sources: reference for the two phases, and the head's aggregate.
struct AggregateForward {
  std::span<const DepthSource> sources;  ///< at least one; a sole source is copied, without an exponential.
  const void* query = nullptr;           ///< folded
  void* h = nullptr;                     ///< [tokens, width]; null if not wanted.
  void* lse = nullptr;                   ///< [tokens] Lambda; null if not wanted.
  OutputNorm norm = {};
};
void aggregate_forward(const DepthProblem& problem, const AggregateForward& args);

/// Phase 1: many queries over the closed blocks, which are read once for all of them.
struct PhaseOneQuery {
  const void* query = nullptr;  ///< folded
  void* o = nullptr;    ///< [tokens, width] normalised mixture; null if not wanted: with one source it is that source.
  void* lse = nullptr;  ///< [tokens] its log sum of exponentials.
};
struct PhaseOneForward {
  std::span<const DepthSource> sources;
  std::span<const PhaseOneQuery> queries;
  bool fp32_mixture = false;  ///< o in gradient_storage, unrounded: for the backward and to judge rounding.
  /// Empty, or per source where to put the 1/rms that is computed here; null where not wanted. Not in the reference.
  std::span<void* const> inverse_rms_out = {};
};
void phase_one_forward(const DepthProblem& problem, const PhaseOneForward& args);

/// Phase 2: joins (o, lse) with further sources one after the other: with sigma = 1 / (1 + exp(lse - s)),
/// h = o + sigma (v - o) and lse' = log(exp(lse) + exp(s)). h may alias o of the same format, lse_out may alias lse_in.
/// Without o and lse_in, which the reference needs, it is the aggregate of `later`.
struct MergeForward {
  const void* o = nullptr;
  const void* lse_in = nullptr;
  std::span<const DepthSource> later;  ///< in order; at least one.
  const void* query = nullptr;         ///< folded
  void* h = nullptr;
  void* lse_out = nullptr;  ///< [tokens] Lambda over everything joined; null if not wanted.
  // Not in the reference.
  bool fp32_mixture = false;     ///< o is in gradient_storage.
  const void* output = nullptr;  ///< added to later.back(), rounded to storage, before anything is scored.
  void* partial_out = nullptr;   ///< [tokens, width] where that sum goes; may be later.back() itself.
  OutputNorm norm = {};
};
void merge_forward(const DepthProblem& problem, const MergeForward& args);

/// How a sublayer's closed sources are best read, by bytes moved: a sole source is its own mixture; two are cheaper
/// read again by every sublayer than mixed into memory and read from there; from three on phase one pays.
enum class InterBlockChoice { alias, direct, batched };
constexpr InterBlockChoice choose_inter_block(int num_sources, int num_queries) {
  if (num_sources == 1) {
    return InterBlockChoice::alias;
  }
  return num_sources == 2 || num_queries == 1 ? InterBlockChoice::direct : InterBlockChoice::batched;
}

}  // namespace plumb
