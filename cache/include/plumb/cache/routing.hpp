// SPDX-License-Identifier: Apache-2.0
//
// routing.hpp: per block a multicast tree over ranks; from the trees, the transfers of one microbatch.
//
// A Holding is a place where a block's value lives: the root holding is where the block was closed, every other holding
// is filled by one Transfer from its parent. Gradients climb the same tree: the mirror of a transfer carries, from `to`
// back to `from`, the gradient sums of the same holdings (and of the partial). All of it is static and the same for
// every microbatch, so nothing about routing ever goes on the wire. A Transfer joins two ranks, not two neighbouring
// chunks. Plain data.
//
// Invariants: (1) each holding but the roots is filled by exactly one transfer; (2) a holding's parent lives on the
// sending rank; (3) except under naive a rank holds a block at most once; (4) every chunk that reads a block finds it
// in a holding on its own rank whose bringer is that chunk or an earlier one.
#pragma once

#include <cstdint>
#include <vector>

#include "plumb/cache/policy.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/layout.hpp"

namespace plumb {

using HoldingId = Id<struct HoldingTag>;
using TransferId = Id<struct TransferTag>;

struct Holding {
  BlockId block{};
  RankId rank{};
  // The chunk before whose forward the value must be there; for a root the chunk that closes the block.
  ChunkId bringer{};
  HoldingId parent{-1};     // -1 for a root
  TransferId transfer{-1};  // the transfer that fills it; -1 for a root
  std::vector<HoldingId>
      children{};                  // in descending order of bringer: the order in which their gradient sums are added
  std::vector<ChunkId> readers{};  // chunks of this rank that read the value from outside their own range, ascending

  bool is_root() const { return parent.value < 0; }
  // Gradient contributions that must reach this holding's accumulator before its sum is complete.
  int num_contributions() const { return static_cast<int>(readers.size() + children.size()); }
};

struct Transfer {
  RankId from{};
  RankId to{};
  ChunkId from_chunk{};  // relay, cached, naive: to_chunk - 1; direct: the closing chunk
  ChunkId to_chunk{};    // the first chunk on `to` that may read what is sent
  MessageLane lane = MessageLane::urgent;
  bool partial = false;               // carries the open partial of the cut from_chunk | to_chunk, ahead of the blocks
  std::vector<HoldingId> holdings{};  // the holdings on `to` that it fills, ascending by block
  // Forward, it may start once the transfer `after_arrival` has arrived (a passing block), or, if that is -1, once the
  // forward of `after_chunk` has run. Backward, once the backward of to_chunk has run and all its sums are complete.
  TransferId after_arrival{-1};
  ChunkId after_chunk{};

  int units() const { return static_cast<int>(holdings.size()) + (partial ? 1 : 0); }
};

struct Routing {
  Policy policy = Policy::cached;
  std::vector<Holding> holdings;    // in the order in which the chunks, walked in depth order, make or need them
  std::vector<Transfer> transfers;  // ascending by to_chunk
  std::vector<std::vector<TransferId>> into_chunk;   // [chunk]: transfers with that to_chunk
  std::vector<std::vector<TransferId>> after_chunk;  // [chunk]: transfers started by its forward
  std::vector<HoldingId> root;                       // [block]

  // The holding that `chunk` reads `block` from (or closes it into). REQUIRES depth.reads(chunk, block) or
  // closer(block) == chunk.
  HoldingId holding_for(BlockId block, ChunkId chunk, const Layout& layout) const;

  // [tokens, d] tensors sent per microbatch, forward; the backward is the mirror image.
  std::int64_t units() const;

  // [block]: its holdings, for holding_for.
  std::vector<std::vector<HoldingId>> holdings_of;
};

// Pure. REQUIRES depth.num_chunks() == layout.num_chunks(), else InputError. With a standard residual the policy must
// be `standard` and vice versa.
Routing make_routing(const Layout& layout, const DepthMap& depth, Policy policy);

}  // namespace plumb
