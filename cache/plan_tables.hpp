// SPDX-License-Identifier: Apache-2.0
//
// plan_tables.hpp (private): what the planner asks of a routing for every message, as flat arrays.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "plumb/cache/arbiter.hpp"
#include "plumb/cache/planner.hpp"

namespace plumb {

// Lists of ids behind each other.
template <class Ids>
class FlatLists {
 public:
  explicit FlatLists(const std::vector<std::vector<Ids>>& lists) {
    for (const std::vector<Ids>& list : lists) {
      ids_.insert(ids_.end(), list.begin(), list.end());
      ends_.push_back(static_cast<std::uint32_t>(ids_.size()));
    }
  }
  std::span<const Ids> of(std::size_t list) const { return {ids_.data() + ends_[list], ids_.data() + ends_[list + 1]}; }

 private:
  std::vector<Ids> ids_;
  std::vector<std::uint32_t> ends_{0};  // of the list before
};

struct PlanTables {
  PlanTables(const Routing& routing, int num_chunks);

  struct Hop {
    TransferId id;
    RankId from;
    RankId to;
    ChunkId to_chunk;
    MessageLane lane = MessageLane::urgent;
    std::int32_t units = 0;
    std::array<std::int32_t, 2> place{};     // [direction]: its place among all transfers, by receiving rank
    std::array<NicArbiter::Link, 2> link{};  // [direction]
  };
  std::vector<Hop> hops;                            // [transfer]
  std::array<std::vector<TransferId>, 2> by_place;  // [direction]
  FlatLists<TransferId> after_chunk;                // forward: transfers that a computation starts
  FlatLists<TransferId> into_chunk;                 // backward: the same
  FlatLists<TransferId> passed_on;                  // forward: transfers that an arrival starts
  FlatLists<TransferId> feeds;                      // backward: transfers whose sums this one joins
  FlatLists<ChunkId> closers;                       // backward: chunks whose backward waits for this one
  std::vector<std::int32_t> forward_needs;          // [chunk]: arrivals
  std::vector<std::int32_t> backward_needs;
  std::vector<std::int32_t> message_needs;  // [transfer]: arrivals and the computation, backward

 private:
  struct Lists {
    std::vector<std::vector<TransferId>> passed_on;
    std::vector<std::vector<TransferId>> feeds;
    std::vector<std::vector<ChunkId>> closers;
  };
  static Lists lists_of(const Routing& routing);
  PlanTables(const Routing& routing, int num_chunks, const Lists& lists);
};

}  // namespace plumb
