// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "verify.hpp"

namespace plumb {

ChunkSources chunk_sources(const Program& program) {
  const std::vector<Holding>& holdings = program.routing.holdings;
  ChunkSources sources;
  sources.begin.assign(static_cast<std::size_t>(program.layout.num_chunks()) + 1, 0);
  for (const Holding& holding : holdings) {
    for (const ChunkId reader : holding.readers) {
      ++sources.begin[reader.index() + 1];
    }
  }
  for (std::size_t c = 1; c < sources.begin.size(); ++c) {
    sources.begin[c] += sources.begin[c - 1];
  }
  sources.holdings.resize(sources.begin.back());
  std::vector<std::size_t> next = sources.begin;
  for (std::size_t h = 0; h < holdings.size(); ++h) {
    for (const ChunkId reader : holdings[h].readers) {
      sources.holdings[next[reader.index()]++] = HoldingId(h);
    }
  }
  const auto block_of = [&](HoldingId id) { return holdings[id.index()].block; };
  for (std::size_t c = 0; c + 1 < sources.begin.size(); ++c) {
    std::sort(sources.holdings.begin() + static_cast<std::ptrdiff_t>(sources.begin[c]),
              sources.holdings.begin() + static_cast<std::ptrdiff_t>(sources.begin[c + 1]),
              [&](HoldingId a, HoldingId b) { return block_of(a) < block_of(b); });
  }
  return sources;
}

namespace {

class RoutingVerifier {
 public:
  RoutingVerifier(const Program& program, const ChunkSources& sources, FaultList& faults)
      : layout_(program.layout), depth_(program.depth), routing_(program.routing), sources_(sources), faults_(faults) {}

  void run() {
    for (std::size_t h = 0; h < routing_.holdings.size(); ++h) {
      check_holding(HoldingId(h));
    }
    check_children();
    for (BlockId block; block.value < depth_.num_sources(); block = block.next()) {
      check_block(block);
    }
    for (ChunkId chunk; chunk.value < layout_.num_chunks(); chunk = chunk.next()) {
      check_readings(chunk);
    }
    std::vector<std::int32_t> filled(routing_.holdings.size(), 0);
    for (std::size_t t = 0; t < routing_.transfers.size(); ++t) {
      check_transfer(TransferId(t), filled);
    }
    for (std::size_t h = 0; h < filled.size(); ++h) {
      const std::int32_t expected = routing_.holdings[h].is_root() ? 0 : 1;
      if (filled[h] != expected) fault(HoldingId(h), fmt::format("is filled by {} transfers", filled[h]));
    }
    check_partials();
    check_lists();
  }

 private:
  const Holding& holding(HoldingId id) const { return routing_.holdings[id.index()]; }

  void fault(HoldingId id, std::string why) {
    faults_.add(holding(id).rank, 0, fmt::format("holding {} of b_{}", id.value, holding(id).block.value),
                std::move(why));
  }
  void fault(TransferId id, std::string why) {
    faults_.add(routing_.transfers[id.index()].from, 0, fmt::format("transfer {}", id.value), std::move(why));
  }

  void check_holding(HoldingId id) {
    const Holding& here = holding(id);
    if (layout_.rank_of(here.bringer) != here.rank) {
      fault(id, fmt::format("is on rank {}, its bringer {} is not", here.rank.value, here.bringer.value));
    }
    for (std::size_t i = 0; i < here.readers.size(); ++i) {
      const ChunkId reader = here.readers[i];
      const bool too_early = here.is_root() ? reader <= here.bringer : reader < here.bringer;
      if (too_early || layout_.rank_of(reader) != here.rank || (i > 0 && reader <= here.readers[i - 1])) {
        fault(id, fmt::format("is read by chunk {}, which cannot read it here", reader.value));
      }
    }
    if (here.is_root()) {
      if (routing_.root[here.block.index()] != id) fault(id, "has no parent, but is not its block's root");
      return;
    }
    // The bringer grows from parent to child, so that the parents form a tree and the value can be there in time.
    const Holding& parent = holding(here.parent);
    if (parent.block != here.block || parent.bringer >= here.bringer || here.transfer.value < 0) {
      fault(id, fmt::format("cannot get its value from holding {}", here.parent.value));
    }
  }

  void check_children() {
    std::vector<std::int32_t> listed(routing_.holdings.size(), 0);
    for (std::size_t h = 0; h < routing_.holdings.size(); ++h) {
      const std::vector<HoldingId>& children = routing_.holdings[h].children;
      for (std::size_t i = 0; i < children.size(); ++i) {
        ++listed[children[i].index()];
        if (holding(children[i]).parent != HoldingId(h)) {
          fault(HoldingId(h), fmt::format("lists child {}, which has another parent", children[i].value));
        }
        if (i > 0 && holding(children[i - 1]).bringer < holding(children[i]).bringer) {
          fault(HoldingId(h), "lists its children in the wrong order");
        }
      }
    }
    for (std::size_t h = 0; h < listed.size(); ++h) {
      if (listed[h] != (routing_.holdings[h].is_root() ? 0 : 1)) {
        fault(HoldingId(h), fmt::format("is a child {} times", listed[h]));
      }
    }
  }

  void check_block(BlockId block) {
    const HoldingId root = routing_.root[block.index()];
    if (holding(root).block != block || !holding(root).is_root() || holding(root).bringer != depth_.closer(block)) {
      fault(root, fmt::format("is no root for b_{}", block.value));
    }
    on_rank_.resize(static_cast<std::size_t>(layout_.pp()), -1);
    for (const HoldingId id : routing_.holdings_of[block.index()]) {
      ++num_listed_;
      std::int32_t& last_block = on_rank_[holding(id).rank.index()];
      if (holding(id).block != block) fault(id, fmt::format("is listed under b_{}", block.value));
      if (last_block == block.value && routing_.policy != Policy::naive) {
        fault(id, fmt::format("is a second copy on rank {}", holding(id).rank.value));
      }
      last_block = block.value;
    }
  }

  // A chunk reads each block closed before it once, or nothing.
  void check_readings(ChunkId chunk) {
    const auto read = sources_.of(chunk);
    const std::int32_t expected = depth_.reads_sources(chunk) ? depth_.first_closed(chunk).value : 0;
    bool good = read.size() == static_cast<std::size_t>(expected);
    for (std::size_t i = 0; good && i < read.size(); ++i) {
      good = holding(read[i]).block.value == static_cast<std::int32_t>(i);
    }
    if (!good) {
      faults_.add(
          layout_.rank_of(chunk), 0, fmt::format("chunk {}", chunk.value),
          fmt::format("must read b_0 to b_{} once each; the holdings say {} readings", expected - 1, read.size()));
    }
  }

  void check_transfer(TransferId id, std::vector<std::int32_t>& filled) {
    const Transfer& transfer = routing_.transfers[id.index()];
    if (transfer.from == transfer.to || transfer.from_chunk >= transfer.to_chunk ||
        layout_.rank_of(transfer.from_chunk) != transfer.from || layout_.rank_of(transfer.to_chunk) != transfer.to) {
      fault(id, fmt::format("cannot go from chunk {} on rank {} to chunk {} on rank {}", transfer.from_chunk.value,
                            transfer.from.value, transfer.to_chunk.value, transfer.to.value));
    }
    if (transfer.units() == 0) fault(id, "carries nothing");
    for (std::size_t i = 0; i < transfer.holdings.size(); ++i) {
      const HoldingId filling = transfer.holdings[i];
      const Holding& target = holding(filling);
      ++filled[filling.index()];
      const bool from_parent = !target.is_root() && holding(target.parent).rank == transfer.from;
      if (target.transfer != id || target.rank != transfer.to || target.bringer != transfer.to_chunk || !from_parent) {
        fault(id, fmt::format("cannot fill holding {}", filling.value));
      }
      if (i > 0 && holding(transfer.holdings[i - 1]).block >= target.block) {
        fault(id, "does not carry its blocks in ascending order");
      }
    }
    const bool starts_here = transfer.after_arrival.value >= 0
                                 ? routing_.transfers[transfer.after_arrival.index()].to == transfer.from
                                 : layout_.rank_of(transfer.after_chunk) == transfer.from;
    if (!starts_here) fault(id, "is started by something on another rank");
  }

  void check_partials() {
    std::vector<std::int32_t> carried(static_cast<std::size_t>(layout_.num_chunks()), 0);
    for (std::size_t t = 0; t < routing_.transfers.size(); ++t) {
      const Transfer& transfer = routing_.transfers[t];
      if (!transfer.partial) continue;
      ++carried[transfer.from_chunk.index()];
      if (transfer.to_chunk != transfer.from_chunk.next()) {
        fault(TransferId(t), "carries a partial past the next chunk");
      }
    }
    for (ChunkId chunk; chunk.value < layout_.num_chunks(); chunk = chunk.next()) {
      const bool crosses = depth_.partial_after(chunk) && layout_.rank_of(chunk) != layout_.rank_of(chunk.next());
      if (carried[chunk.index()] != (crosses ? 1 : 0)) {
        faults_.add(
            layout_.rank_of(chunk), 0, fmt::format("chunk {}", chunk.value),
            fmt::format("its partial is carried by {} transfers, must be {}", carried[chunk.index()], crosses ? 1 : 0));
      }
    }
  }

  // The derived lists hold each transfer, and each holding, once and in the right place.
  void check_lists() {
    std::size_t into = 0;
    std::size_t after = 0;
    for (ChunkId chunk; chunk.value < layout_.num_chunks(); chunk = chunk.next()) {
      for (const TransferId id : routing_.into_chunk[chunk.index()]) {
        ++into;
        if (routing_.transfers[id.index()].to_chunk != chunk) {
          fault(id, fmt::format("is listed into chunk {}", chunk.value));
        }
      }
      for (const TransferId id : routing_.after_chunk[chunk.index()]) {
        ++after;
        const Transfer& transfer = routing_.transfers[id.index()];
        if (transfer.after_arrival.value >= 0 || transfer.after_chunk != chunk) {
          fault(id, fmt::format("is listed as started by chunk {}", chunk.value));
        }
      }
    }
    const auto started_by_chunks = static_cast<std::size_t>(
        std::count_if(routing_.transfers.begin(), routing_.transfers.end(),
                      [](const Transfer& transfer) { return transfer.after_arrival.value < 0; }));
    if (into != routing_.transfers.size() || after != started_by_chunks || num_listed_ != routing_.holdings.size()) {
      faults_.add(
          RankId{}, 0, "routing",
          fmt::format("lists {} of {} transfers into chunks, {} of {} after chunks, {} of {} holdings", into,
                      routing_.transfers.size(), after, started_by_chunks, num_listed_, routing_.holdings.size()));
    }
  }

  const Layout& layout_;
  const DepthMap& depth_;
  const Routing& routing_;
  const ChunkSources& sources_;
  FaultList& faults_;
  std::vector<std::int32_t> on_rank_;  // [rank]: last block seen there
  std::size_t num_listed_ = 0;         // holdings listed under blocks
};

}  // namespace

void verify_routing(const Program& program, const ChunkSources& sources, FaultList& faults) {
  RoutingVerifier(program, sources, faults).run();
}

}  // namespace plumb
