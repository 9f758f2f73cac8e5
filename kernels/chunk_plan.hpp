// SPDX-License-Identifier: Apache-2.0
// chunk_plan.hpp (private): the static facts of a chunk that its forward and backward walk along.
//
// A *group* is the run of sublayers whose queries share one pass over the closed blocks: a block, or under
// DepthMode::full a schedule block. Groups are laid over the whole model, and a chunk holds *parts* of them: so which
// sources phase one joins for a sublayer, hence every bit, does not depend on the cuts.
#pragma once

#include <vector>

#include "plumb/kernels/depth_config.hpp"

namespace plumb::kernels_detail {

struct SublayerPlan {
  int block = 0;           // the block it adds to; it reads b_0 .. b_{block-1}
  bool opens = false;      // first of its block: there is no partial to read
  bool closes = false;     // last of its block
  int part = 0;            // index into ChunkPlan::parts
  int saved_partial = -1;  // tape row that keeps the partial after it; -1 if no later sublayer of the chunk reads it
  int unsaved = 0;         // how many before it in its part have no such row
};

struct Part {
  int begin = 0;  // sublayers of the chunk, [begin, end)
  int end = 0;
  int num_prior = 0;  // blocks closed before the group: the sources of phase one
  int size() const { return end - begin; }
};

struct ChunkPlan {
  ChunkDepth depth;
  std::vector<SublayerPlan> sublayers;
  std::vector<Part> parts;
  int num_read = 0;  // blocks some aggregate of the chunk reads: b_0 .. b_{num_read-1}
  int num_saved_partials = 0;
  int longest_part = 0;
  int most_unsaved = 0;  // sublayers of a part without a saved partial
  bool head = false;     // the chunk computes the head's aggregate
};

/// Throws std::invalid_argument on an illegal config or range.
ChunkPlan make_chunk_plan(const DepthConfig& config, const ChunkRange& chunk);

}  // namespace plumb::kernels_detail
