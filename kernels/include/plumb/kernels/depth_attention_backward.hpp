// SPDX-License-Identifier: Apache-2.0
// depth_attention_backward.hpp: backward operators of depth attention, direct, of the merge, and batched over blocks.
//
// With G = dL/dh: u_i = G . v_i, delta = sum_i p_i u_i, ds_i = p_i (u_i - delta),
//   dv_i = p_i G + ds_i r_i (q - s_i r_i v_i / d),   dq = sum over tokens and i of ds_i r_i v_i,   dw = dq*g, dg =
//   dq*w.
// For a sole source p = 1 and ds = 0 exactly: it is forced, because two rounded sums would not cancel.
// Probabilities are recomputed from Lambda and 1/rms; delta is taken in full precision and never from a stored h.
// Gradients, queries and statistics are in gradient_storage. First touch overwrites an accumulator instead of adding.
// dq is summed over fixed runs of kTokensPerRun tokens, one row each, then over the rows by a fixed tree: the bits do
// not depend on how the work is divided. Ownership and threads: as in depth_attention.hpp.
#pragma once

#include <cstdint>
#include <span>

#include "plumb/kernels/depth_attention.hpp"

namespace plumb {

inline constexpr std::int64_t kTokensPerRun = 256;

/// Rows of a `query_sums` buffer, [num_token_runs(tokens), width]: clear it, let operators add to it, reduce it.
constexpr std::int64_t num_token_runs(std::int64_t tokens) { return (tokens + kTokensPerRun - 1) / kTokensPerRun; }

/// A source and the accumulator of its gradient, [tokens, width].
struct DepthSourceGradient {
  DepthSource source;
  void* gradient = nullptr;
  bool first_touch = false;
};

/// Backward of aggregate_forward.
struct AggregateBackward {
  std::span<const DepthSourceGradient> sources;
  const void* query = nullptr;
  const void* grad_h = nullptr;
  void* query_sums = nullptr;  ///< added to
};
void aggregate_backward(const DepthProblem& problem, const AggregateBackward& args);

/// Backward of merge_forward for one sublayer. Writes delta, which needs the mixture o (recomputed by phase 1; in
/// gradient_storage, because a rounded o would spoil delta; or none: then `later` holds all sources), and
/// adds the gradient of the last of `later` when it is the open partial. All other sources are left to
/// inter_block_backward. With no `later` at all only delta is written.
struct MergeBackward {
  const void* o = nullptr;
  const void* lse_in = nullptr;        ///< of o
  std::span<const DepthSource> later;  ///< as in the forward
  const void* query = nullptr;
  const void* grad_h = nullptr;
  const void* lse = nullptr;     ///< Lambda, as the forward left it.
  void* delta = nullptr;         ///< [tokens], written
  void* grad_partial = nullptr;  ///< added to: gradient of later.back(); null if that is a closed block.
  void* query_sums = nullptr;    ///< added to, only with grad_partial
};
void merge_backward(const DepthProblem& problem, const MergeBackward& args);

/// One sublayer's part in the batched backward.
struct InterBlockReader {
  const void* query = nullptr;
  const void* grad_h = nullptr;
  const void* lse = nullptr;    ///< Lambda over all sources of the sublayer
  const void* delta = nullptr;  ///< from merge_backward
  void* query_sums = nullptr;   ///< added to
  bool sole_source = false;     ///< the sublayer read this one source only.
};

/// Gradients of closed blocks from all sublayers of a block of sublayers at once, each block read once:
///   dB_n += sum_l p_{l,n} G_l + r_n sum_l ds_{l,n} q_l - (r_n^2/d) (sum_l ds_{l,n} s_{l,n}) b_n.
/// Every reader reads every source.
struct InterBlockBackward {
  std::span<const DepthSourceGradient> sources;
  std::span<const InterBlockReader> readers;
};
void inter_block_backward(const DepthProblem& problem, const InterBlockBackward& args);

/// dq = sum of the rows of query_sums (which are used up); grad_query += dq*gain, grad_gain += dq*query (unfolded).
struct QueryReduction {
  void* query_sums = nullptr;
  const void* query = nullptr;
  const void* gain = nullptr;
  void* grad_query = nullptr;
  void* grad_gain = nullptr;
};
void reduce_query_gradient(const DepthProblem& problem, const QueryReduction& args);

}  // namespace plumb
