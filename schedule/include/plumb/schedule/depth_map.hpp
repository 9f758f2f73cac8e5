// SPDX-License-Identifier: Apache-2.0
//
// depth_map.hpp: how L sublayers fall into blocks and into chunks.
//
// The unit is the sublayer (one attention or one MLP), never the decoder layer. Sublayers count from 0 here; sublayer
// ranges are half open. Block 0 is the embedding; block n >= 1 is the sum of sublayers [(n-1)*S, min(n*S, L)). Chunk c
// runs sublayers [cut(c-1), cut(c)). Any non-decreasing cuts are legal: uneven, inside a block, empty chunks, several
// block ends in one chunk. A block is closed by the chunk that runs its last sublayer (end-commit); the embedding is
// closed by chunk 0. With Residual::standard there are no blocks at all: one hidden state crosses every cut, and it is
// called the partial.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plumb/schedule/ids.hpp"

namespace plumb {

enum class Residual { standard, attnres_block, attnres_full };

std::string_view to_string(Residual residual);

struct SublayerRange {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
  bool empty() const { return begin == end; }
  friend bool operator==(const SublayerRange&, const SublayerRange&) = default;
};

class DepthMap {
 public:
  // `cuts` holds one end per chunk, non-decreasing, the last equal to `sublayers`. `block` = sublayers per block
  // (S), 1..L; attnres_full requires S = 1; standard ignores it (block_sublayers() is then L). L <= 2^20, at most 65536
  // chunks. Throws InputError naming the offending cut or field and what is legal.
  DepthMap(int sublayers, int block, std::vector<int> cuts, Residual residual = Residual::attnres_block);

  // Cuts as even as possible: `units` of `sublayers / units` sublayers each (units = decoder layers, or L itself) are
  // dealt to `chunks`, the first `units mod chunks` chunks get one more. REQUIRES sublayers % units == 0.
  static std::vector<int> even_cuts(int sublayers, int units, int chunks);

  int sublayers() const { return sublayers_; }
  int block_sublayers() const { return block_; }
  Residual residual() const { return residual_; }
  int num_chunks() const { return static_cast<int>(cuts_.size()); }
  std::span<const int> cuts() const { return cuts_; }

  // N, without the embedding; 0 for a standard residual.
  int num_blocks() const { return num_blocks_; }
  // Values b_0..b_N that can travel: N+1, or 0 for a standard residual.
  int num_sources() const { return static_cast<int>(closer_.size()); }

  SublayerRange sublayers_of(ChunkId chunk) const;
  SublayerRange sublayers_of_block(BlockId block) const;  // empty for the embedding

  // The chunk that runs the block's last sublayer; chunk 0 for the embedding.
  ChunkId closer(BlockId block) const;
  // Blocks closed by this chunk in ascending order: [first, end). Chunk 0's range begins with the embedding.
  BlockId first_closed(ChunkId chunk) const;
  BlockId end_closed(ChunkId chunk) const;
  int num_closed(ChunkId chunk) const { return end_closed(chunk).value - first_closed(chunk).value; }

  // True if the cut after `chunk` lies inside a block. For a standard residual it is true for every chunk but the last,
  // also where only empty chunks follow: the hidden state must reach the head. The last chunk has no cut after it.
  bool partial_after(ChunkId chunk) const;

  // True if this chunk needs the values closed before it: it runs a sublayer, or it is the last chunk, which holds the
  // head. An empty chunk in the middle reads nothing. Always false for a standard residual, which has no such values.
  bool reads_sources(ChunkId chunk) const;
  // True if this chunk reads `block` from outside: closer(block) < chunk and reads_sources(chunk).
  bool reads(ChunkId chunk, BlockId block) const;

  friend bool operator==(const DepthMap&, const DepthMap&) = default;

 private:
  int sublayers_;
  int block_;
  Residual residual_;
  std::vector<int> cuts_;
  int num_blocks_ = 0;
  std::vector<std::int32_t> first_closed_;  // per chunk, and one past the last: where the closed range begins
  std::vector<std::int32_t> closer_;        // per block, the embedding included
};

}  // namespace plumb
