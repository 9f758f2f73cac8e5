// SPDX-License-Identifier: Apache-2.0
#include "plan_tables.hpp"

#include <algorithm>

namespace plumb {
namespace {

template <class Ids>
void add_once(std::vector<Ids>& list, Ids id) {
  if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
}

}  // namespace

PlanTables::Lists PlanTables::lists_of(const Routing& routing) {
  const std::size_t num_transfers = routing.transfers.size();
  Lists lists;
  lists.passed_on.resize(num_transfers);
  lists.feeds.resize(num_transfers);
  lists.closers.resize(num_transfers);
  for (std::size_t t = 0; t < num_transfers; ++t) {
    const Transfer& transfer = routing.transfers[t];
    if (transfer.after_arrival.value >= 0) lists.passed_on[transfer.after_arrival.index()].push_back(TransferId(t));
    if (transfer.partial) add_once(lists.closers[t], transfer.from_chunk);
    for (const HoldingId id : transfer.holdings) {
      const Holding& parent = routing.holdings[routing.holdings[id.index()].parent.index()];
      if (parent.is_root()) {
        add_once(lists.closers[t], parent.bringer);
      } else {
        add_once(lists.feeds[t], parent.transfer);
      }
    }
  }
  return lists;
}

PlanTables::PlanTables(const Routing& routing, int num_chunks) : PlanTables(routing, num_chunks, lists_of(routing)) {}

PlanTables::PlanTables(const Routing& routing, int num_chunks, const Lists& lists)
    : after_chunk(routing.after_chunk),
      into_chunk(routing.into_chunk),
      passed_on(lists.passed_on),
      feeds(lists.feeds),
      closers(lists.closers),
      forward_needs(static_cast<std::size_t>(num_chunks), 0),
      backward_needs(static_cast<std::size_t>(num_chunks), 0),
      message_needs(routing.transfers.size(), 1) {
  for (std::size_t t = 0; t < routing.transfers.size(); ++t) {
    const Transfer& transfer = routing.transfers[t];
    hops.push_back({.id = TransferId(t),
                    .from = transfer.from,
                    .to = transfer.to,
                    .to_chunk = transfer.to_chunk,
                    .lane = transfer.lane,
                    .units = transfer.units()});
    ++forward_needs[transfer.to_chunk.index()];
    for (const TransferId fed : feeds.of(t))
      ++message_needs[fed.index()];
    for (const ChunkId chunk : closers.of(t))
      ++backward_needs[chunk.index()];
  }
  for (const std::size_t direction : {0U, 1U}) {
    RankId Hop::*const receiver = direction == 0 ? &Hop::to : &Hop::from;
    std::vector<TransferId>& order = by_place[direction];
    for (const Hop& hop : hops)
      order.push_back(hop.id);
    std::stable_sort(order.begin(), order.end(),
                     [&](TransferId a, TransferId b) { return hops[a.index()].*receiver < hops[b.index()].*receiver; });
    for (std::size_t place = 0; place < order.size(); ++place)
      hops[order[place].index()].place[direction] = static_cast<std::int32_t>(place);
  }
}

}  // namespace plumb
