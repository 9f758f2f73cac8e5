// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/routing.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "plumb/schedule/invariant.hpp"

namespace plumb {

namespace {

constexpr HoldingId no_holding{-1};
constexpr TransferId no_transfer{-1};

// Walks the chunks in depth order and remembers, per block and rank, the holding that a chunk would read from now.
class RoutingBuilder {
 public:
  RoutingBuilder(const Layout& layout, const DepthMap& depth, Policy policy)
      : layout_(layout),
        depth_(depth),
        on_rank_(static_cast<std::size_t>(depth.num_sources()),
                 std::vector<HoldingId>(static_cast<std::size_t>(layout.pp()), no_holding)) {
    routing_.policy = policy;
    const auto num_chunks = static_cast<std::size_t>(layout.num_chunks());
    routing_.into_chunk.resize(num_chunks);
    routing_.after_chunk.resize(num_chunks);
    routing_.root.resize(static_cast<std::size_t>(depth.num_sources()), no_holding);
    routing_.holdings_of.resize(static_cast<std::size_t>(depth.num_sources()));
  }

  Routing build() {
    for (ChunkId chunk{0}; chunk.value < layout_.num_chunks(); chunk = chunk.next()) {
      if (chunk.value > 0) {
        bring_into(chunk);
      }
      note_reader(chunk);
      close_blocks(chunk);
    }
    for (Holding& holding : routing_.holdings) {
      std::sort(holding.children.begin(), holding.children.end(), [this](HoldingId a, HoldingId b) {
        return routing_.holdings[a.index()].bringer > routing_.holdings[b.index()].bringer;
      });
    }
    for (std::size_t t = 0; t < routing_.transfers.size(); ++t) {
      const Transfer& transfer = routing_.transfers[t];
      routing_.into_chunk[transfer.to_chunk.index()].push_back(TransferId(t));
      if (transfer.after_arrival == no_transfer) {
        routing_.after_chunk[transfer.after_chunk.index()].push_back(TransferId(t));
      }
    }
    return std::move(routing_);
  }

 private:
  void close_blocks(ChunkId chunk) {
    const BlockId end = depth_.end_closed(chunk);
    for (BlockId block = depth_.first_closed(chunk); block < end; block = block.next()) {
      const RankId rank = layout_.rank_of(chunk);
      routing_.root[block.index()] = add_holding({.block = block, .rank = rank, .bringer = chunk});
    }
  }

  void note_reader(ChunkId chunk) {
    const RankId rank = layout_.rank_of(chunk);
    const BlockId end = depth_.first_closed(chunk);
    for (BlockId block{0}; block < end && depth_.reads_sources(chunk); block = block.next()) {
      const HoldingId holding = on_rank_[block.index()][rank.index()];
      require(holding != no_holding, [&] {
        return fmt::format("routing: block {} never reaches rank {} before chunk {}", block.value, rank.value,
                           chunk.value);
      });
      routing_.holdings[holding.index()].readers.push_back(chunk);
    }
  }

  // The transfers that must have arrived before `chunk` runs.
  void bring_into(ChunkId chunk) {
    const RankId rank = layout_.rank_of(chunk);
    const RankId previous_rank = layout_.rank_of(chunk.previous());
    const bool crosses = rank != previous_rank;
    first_new_transfer_ = routing_.transfers.size();
    if (crosses && depth_.partial_after(chunk.previous())) {
      transfer_for(chunk, chunk.previous(), MessageLane::urgent, chunk.previous(), no_transfer).partial = true;
    }
    const BlockId end = depth_.first_closed(chunk);
    for (BlockId block{0}; block < end; block = block.next()) {
      const bool lacks = on_rank_[block.index()][rank.index()] == no_holding;
      if (lacks || (crosses && routing_.policy == Policy::naive)) {
        bring(block, chunk);
      }
    }
  }

  void bring(BlockId block, ChunkId chunk) {
    const RankId rank = layout_.rank_of(chunk);
    const ChunkId previous = chunk.previous();
    const ChunkId closer = depth_.closer(block);
    const HoldingId parent = routing_.policy == Policy::direct
                                 ? routing_.root[block.index()]
                                 : on_rank_[block.index()][layout_.rank_of(previous).index()];
    const Holding& source = routing_.holdings[parent.index()];
    ChunkId from_chunk = previous;
    MessageLane lane = MessageLane::urgent;
    ChunkId after_chunk = previous;
    TransferId after_arrival = no_transfer;
    if (routing_.policy == Policy::direct) {
      from_chunk = closer;
      after_chunk = closer;
      lane = closer == previous ? MessageLane::urgent : MessageLane::bulk;
    } else if (routing_.policy == Policy::cached && closer != previous) {
      lane = MessageLane::bulk;
      after_arrival = source.transfer;
      after_chunk = closer;
    }
    Transfer& transfer = transfer_for(chunk, from_chunk, lane, after_chunk, after_arrival);
    const auto transfer_id = TransferId(static_cast<std::size_t>(&transfer - routing_.transfers.data()));
    transfer.holdings.push_back(HoldingId(routing_.holdings.size()));
    routing_.holdings[parent.index()].children.push_back(HoldingId(routing_.holdings.size()));
    add_holding({.block = block, .rank = rank, .bringer = chunk, .parent = parent, .transfer = transfer_id});
  }

  // Blocks that leave the same rank at the same moment for the same chunk share one message.
  Transfer& transfer_for(ChunkId to_chunk, ChunkId from_chunk, MessageLane lane, ChunkId after_chunk,
                         TransferId after_arrival) {
    for (std::size_t t = first_new_transfer_; t < routing_.transfers.size(); ++t) {
      Transfer& transfer = routing_.transfers[t];
      const bool same_start = transfer.after_arrival == after_arrival &&
                              (after_arrival != no_transfer || transfer.after_chunk == after_chunk);
      if (transfer.from_chunk == from_chunk && transfer.lane == lane && same_start) {
        return transfer;
      }
    }
    routing_.transfers.push_back({.from = layout_.rank_of(from_chunk),
                                  .to = layout_.rank_of(to_chunk),
                                  .from_chunk = from_chunk,
                                  .to_chunk = to_chunk,
                                  .lane = lane,
                                  .partial = false,
                                  .holdings = {},
                                  .after_arrival = after_arrival,
                                  .after_chunk = after_chunk});
    return routing_.transfers.back();
  }

  HoldingId add_holding(Holding holding) {
    const HoldingId id(routing_.holdings.size());
    on_rank_[holding.block.index()][holding.rank.index()] = id;
    routing_.holdings_of[holding.block.index()].push_back(id);
    routing_.holdings.push_back(std::move(holding));
    return id;
  }

  const Layout& layout_;
  const DepthMap& depth_;
  Routing routing_;
  std::vector<std::vector<HoldingId>> on_rank_;  // [block][rank]: latest holding
  std::size_t first_new_transfer_ = 0;           // first transfer into the chunk under construction
};

}  // namespace

HoldingId Routing::holding_for(BlockId block, ChunkId chunk, const Layout& layout) const {
  const RankId rank = layout.rank_of(chunk);
  HoldingId found = no_holding;
  for (const HoldingId id : holdings_of[block.index()]) {  // ascending by bringer: the last match is the latest copy
    if (holdings[id.index()].rank == rank && holdings[id.index()].bringer <= chunk) {
      found = id;
    }
  }
  require(found != no_holding,
          [&] { return fmt::format("routing: no holding of block {} for chunk {}", block.value, chunk.value); });
  return found;
}

std::int64_t Routing::units() const {
  std::int64_t sum = 0;
  for (const Transfer& transfer : transfers) {
    sum += transfer.units();
  }
  return sum;
}

Routing make_routing(const Layout& layout, const DepthMap& depth, Policy policy) {
  if (depth.num_chunks() != layout.num_chunks()) {
    throw InputError(fmt::format("the cuts make {} chunks, but pp {} x vp {} = {}", depth.num_chunks(), layout.pp(),
                                 layout.vp(), layout.num_chunks()));
  }
  if ((policy == Policy::standard) != (depth.residual() == Residual::standard)) {
    throw InputError(fmt::format("policy {} does not fit residual {}", to_string(policy), to_string(depth.residual())));
  }
  return RoutingBuilder(layout, depth, policy).build();
}

}  // namespace plumb
