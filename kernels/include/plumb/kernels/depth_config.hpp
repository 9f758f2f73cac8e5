// SPDX-License-Identifier: Apache-2.0
// depth_config.hpp: how a model's depth is divided into blocks, and which of it one chunk sees.
//
// The unit is the SUBLAYER (one attention or one MLP; a decoder layer is two), counted from 0 here. Source 0 is the
// token embedding b_0; block n >= 1 is the plain sum of the outputs of sublayers [(n-1) S, min(n S, L)). Sublayer i
// reads b_0 .. b_{i/S}, and the open partial sum when i is not the first of its block. It is NOT a placement:
// ranks and microbatches are unknown in this room. Threads: plain values.
#pragma once

#include <cstdint>
#include <string_view>

#include "plumb/kernels/storage.hpp"

namespace plumb {

/// block: S sublayers share a block. full: every sublayer is a block of its own (S = 1), run in two phases by
/// schedule blocks of `schedule_length` sublayers; their length changes the order of work, hence rounding, no more.
enum class DepthMode { block, full };

/// "block" or "full"; anything else throws std::invalid_argument naming the legal words.
DepthMode depth_mode_from_name(std::string_view name);

/// Initial value of the queries: zero (every aggregate starts as the plain mean) or N(0, stddev^2).
enum class QueryInit { zero, normal };

struct DepthConfig {
  DepthMode mode = DepthMode::block;
  int num_sublayers = 0;    ///< L, over the whole model.
  int block_length = 1;     ///< S, sublayers per block, 1..L; the last block may be short. 1 under `full`.
  int schedule_length = 8;  ///< `full` only: sublayers whose queries share one pass over the earlier blocks.
  std::int64_t width = 0;   ///< d.
  double eps = 1e-6;        ///< inside the root of the key norm.
  Storage storage = Storage::fp32;
  bool head_aggregate = true;  ///< whether the head reads its own aggregate of b_0 .. b_N.
  QueryInit query_init = QueryInit::zero;
  double query_stddev = 0.02;  ///< QueryInit::normal only.
  std::uint64_t seed = 0;      ///< QueryInit::normal only; drawn by (seed, parameter name).

  bool operator==(const DepthConfig&) const = default;
};

/// Throws std::invalid_argument, one line with the nearest legal value, for the first field that is not legal.
void validate(const DepthConfig& config);

/// N = ceil(L / S); sources at the head are N + 1.
int num_blocks(const DepthConfig& config);

/// Added parameters of the whole model: a query and a key gain per aggregate, 2 (L + 1) d with the head's.
std::int64_t num_depth_parameters(const DepthConfig& config);

/// Consecutive sublayers [first, first + count) of the model; `has_head` on the chunk that also runs the head.
struct ChunkRange {
  int first = 0;
  int count = 0;
  bool has_head = false;

  bool operator==(const ChunkRange&) const = default;
};

/// What a chunk reads and closes; derived, never chosen.
struct ChunkDepth {
  int num_sources = 0;       ///< blocks closed before the chunk, b_0 included: b_0 .. b_{num_sources-1}.
  int num_closed = 0;        ///< blocks whose last sublayer is in the chunk: b_{num_sources} and on. Never b_0.
  bool partial_in = false;   ///< the cut before the chunk lies inside a block.
  bool partial_out = false;  ///< the cut behind the chunk lies inside a block.
};

/// REQUIRES: a valid config. Throws std::invalid_argument when the range leaves [0, L] or the head is not at L.
ChunkDepth chunk_depth(const DepthConfig& config, const ChunkRange& chunk);

}  // namespace plumb
