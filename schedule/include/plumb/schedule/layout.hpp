// SPDX-License-Identifier: Apache-2.0
//
// layout.hpp: P pipeline ranks, V virtual stages on each, M microbatches, and which rank runs which chunk.
//
// The model is cut into C = P*V chunks in depth order. Placement `loop` puts chunk c on rank c mod P; `vee` runs
// 0..P-1, then P-1..0, and so on, so that the two chunks at each turn share a rank. A Layout knows nothing of sublayers
// (DepthMap does), of order (Schedule does) or of bytes. Plain value; safe to read from any thread.
#pragma once

#include <string_view>
#include <vector>

#include "plumb/schedule/ids.hpp"

namespace plumb {

enum class Placement { loop, vee };

std::string_view to_string(Placement placement);

// "loop" or "vee"; anything else throws InputError naming both.
Placement parse_placement(std::string_view text);

class Layout {
 public:
  // Throws InputError naming the field and the legal range unless 1 <= pp <= 4096, 1 <= vp <= 1024, pp*vp <= 65536,
  // 1 <= microbatches <= 1048576 and pp*vp*microbatches <= 2^28.
  Layout(int pp, int vp, int microbatches, Placement placement = Placement::loop);

  int pp() const { return pp_; }
  int vp() const { return vp_; }
  int microbatches() const { return microbatches_; }
  Placement placement() const { return placement_; }
  int num_chunks() const { return pp_ * vp_; }

  // All O(1). REQUIRES: arguments in range (checked by assert only).
  RankId rank_of(ChunkId chunk) const;
  VirtualStage virtual_stage_of(ChunkId chunk) const;
  ChunkId chunk_of(RankId rank, VirtualStage stage) const;
  std::vector<ChunkId> chunks_on(RankId rank) const;  // ascending, V of them; allocates

  // First chunk after `chunk` that lives on `rank`, or num_chunks() if there is none. ChunkId(-1) asks for the first of
  // all.
  ChunkId next_chunk_on(RankId rank, ChunkId chunk) const;

  // The same layout with another number of microbatches.
  Layout with_microbatches(int microbatches) const;

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  int pp_;
  int vp_;
  int microbatches_;
  Placement placement_;
};

}  // namespace plumb
