// SPDX-License-Identifier: Apache-2.0
#include "chunk_needs.hpp"

#include <algorithm>

namespace plumb {
namespace {

constexpr SimTime never{-1};       // not waited for
using Row = std::vector<SimTime>;  // [chunk]: what must pass from its end on

void take_longer(Row& to, const Row& from, SimTime later) {
  for (std::size_t chunk = 0; chunk < to.size(); ++chunk) {
    if (from[chunk] != never) to[chunk] = std::max(to[chunk], from[chunk] + later);
  }
}

// Leaves out what follows from the others. Chunks are visited as a microbatch comes through them.
class Sieve {
 public:
  explicit Sieve(std::size_t chunks) : from_(chunks, Row(chunks, never)) {}

  // `wanted`: of `chunk`; those before it have been sieved and take `durations`.
  template <class Before>
  std::vector<ChunkNeeds::Need> sieve(std::size_t chunk, const Row& wanted, const Row& durations, Before&& before) {
    std::vector<ChunkNeeds::Need> kept;
    Row& all = from_[chunk];
    before([&](std::size_t other) {
      if (wanted[other] == never || wanted[other] <= all[other]) return;
      kept.push_back({static_cast<std::uint16_t>(other), wanted[other]});
      all[other] = wanted[other];
      take_longer(all, from_[other], durations[other] + wanted[other]);
    });
    return kept;
  }

 private:
  std::vector<Row> from_;  // [chunk][chunk that it follows]: what must pass between
};

SimTime taken(const LinkTable& links, RankId from, RankId to, SimTime Link::*unit, int units) {
  const Link& link = links.links[links.of_pair[static_cast<std::size_t>(from.value * links.num_ranks + to.value)]];
  return link.latency + link.*unit * units;
}

// The chunks of a holding's rank that use it: the one that closes the block, those that read it.
struct Users {
  ChunkId first{-1};
  ChunkId last{-1};
};

Users users_of(const Holding& holding) {
  Users users;
  if (!holding.readers.empty()) users = {holding.readers.front(), holding.readers.back()};
  if (holding.is_root()) {
    users.first = holding.bringer;
    users.last = std::max(users.last, holding.bringer);
  }
  return users;
}

}  // namespace

ChunkNeeds::ChunkNeeds(const Layout& layout, const DepthMap& depth, const Routing& routing, const LinkTable& links,
                       const UnitBytes& bytes, int tp, const std::vector<ActionTimes>& times,
                       const std::vector<double>& activations) {
  const auto chunks = static_cast<std::size_t>(layout.num_chunks());
  const std::size_t transfers = routing.transfers.size();
  Row forward_times;
  Row backward_times;
  for (const ActionTimes& of : times) {
    forward_times.push_back(of.forward);
    backward_times.push_back(std::min(of.backward, of.backward_input));
  }
  // A passing block arrives after the transfer that brought it, which has a smaller number.
  std::vector<Row> arrives(transfers, Row(chunks, never));
  std::vector<Row> returns = arrives;
  for (std::size_t t = 0; t < transfers; ++t) {
    const Transfer& transfer = routing.transfers[t];
    const SimTime takes = taken(links, transfer.from, transfer.to, &Link::value_unit, transfer.units());
    if (transfer.after_arrival.value >= 0) {
      take_longer(arrives[t], arrives[transfer.after_arrival.index()], takes);
    } else {
      arrives[t][transfer.after_chunk.index()] = takes;
    }
  }
  for (std::size_t t = transfers; t-- > 0;) {
    const Transfer& transfer = routing.transfers[t];
    const SimTime takes = taken(links, transfer.to, transfer.from, &Link::gradient_unit, transfer.units());
    returns[t][transfer.to_chunk.index()] = takes;
    for (const HoldingId filled : transfer.holdings) {
      for (const HoldingId child : routing.holdings[filled.index()].children)
        take_longer(returns[t], returns[routing.holdings[child.index()].transfer.index()], takes);
    }
  }
  forward_.resize(chunks);
  backward_.resize(chunks);
  Sieve up(chunks);
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    Row wanted(chunks, never);
    for (const TransferId id : routing.into_chunk[chunk])
      take_longer(wanted, arrives[id.index()], SimTime(0));
    forward_[chunk] = up.sieve(chunk, wanted, forward_times, [&](auto&& visit) {
      for (std::size_t other = chunk; other-- > 0;)
        visit(other);
    });
  }
  Sieve down(chunks);
  for (std::size_t chunk = chunks; chunk-- > 0;) {
    Row wanted(chunks, never);
    const ChunkId id(chunk);
    if (chunk + 1 < chunks && depth.partial_after(id)) {
      for (const TransferId into : routing.into_chunk[chunk + 1]) {
        if (routing.transfers[into.index()].partial) take_longer(wanted, returns[into.index()], SimTime(0));
      }
    }
    for (BlockId block = depth.first_closed(id); block < depth.end_closed(id); block = block.next()) {
      for (const HoldingId child : routing.holdings[routing.root[block.index()].index()].children)
        take_longer(wanted, returns[routing.holdings[child.index()].transfer.index()], SimTime(0));
    }
    backward_[chunk] = down.sieve(chunk, wanted, backward_times, [&](auto&& visit) {
      for (std::size_t other = chunk + 1; other < chunks; ++other)
        visit(other);
    });
  }

  const double value = static_cast<double>(bytes.value) / tp;
  const double gradient = static_cast<double>(bytes.gradient_slot) / tp;
  holdings_.resize(chunks);
  for (const Holding& holding : routing.holdings) {
    const Users users = users_of(holding);
    if (users.first.value < 0) continue;
    holdings_[users.first.index()].values += value;
    holdings_[users.first.index()].gradients_closed += gradient;
    holdings_[users.last.index()].gradients_opened += gradient;
  }
  for (ChunkId chunk; chunk.index() < chunks; chunk = chunk.next()) {
    ChunkHoldings& held = holdings_[chunk.index()];
    held.activation = activations[chunk.index()];
    if (chunk.value > 0 && depth.partial_after(chunk.previous())) {
      held.values += value;
      held.passing_backward += gradient;
    }
    if (chunk.index() + 1 < chunks && depth.partial_after(chunk)) {
      held.passing_forward += value;
      held.passing_backward += gradient;
    }
  }
}

}  // namespace plumb
