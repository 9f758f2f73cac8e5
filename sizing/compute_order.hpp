// SPDX-License-Identifier: Apache-2.0
//
// compute_order.hpp (private): the computations of a schedule in an order in which each comes after all that it needs,
// to go through them again and again with other times.
//
// It follows the order of every rank and the way of each microbatch down the chunks and up again, not messages: what a
// hop takes at the least is said in ChunkNeeds. Nothing about memory or network is waited for, so that no simulation of
// the schedule can be shorter or hold less.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "chunk_needs.hpp"
#include "plumb/schedule/schedule.hpp"
#include "plumb/sizing/candidates.hpp"

namespace plumb {

struct LeastStep {
  SimTime step{0};
  std::vector<double> held_bytes;  // [rank] at its fullest, of one device: activations, blocks and their gradients
};

class ComputeOrder {
 public:
  // REQUIRES a legal schedule.
  explicit ComputeOrder(const Schedule& schedule);

  // `times` per chunk. No sum in held_bytes is rounded the way a simulation rounds it: allow for that.
  LeastStep least_step(const ChunkNeeds& needs, const std::vector<ActionTimes>& times) const;

  std::size_t bytes() const { return steps_.size() * sizeof(Step); }

 private:
  struct Step {
    std::int32_t microbatch;
    std::uint16_t chunk;
    Op op;
  };

  Layout layout_;
  std::vector<Step> steps_;
};

// Orders that were wanted lately. Safe from many threads.
class ComputeOrders {
 public:
  // REQUIRES a schedule that is legal for the candidate's layout.
  std::shared_ptr<const ComputeOrder> of(const Candidate& candidate);

 private:
  using Key = std::tuple<ScheduleKind, int, int, int, int>;  // group, P, V, M
  struct Entry {
    std::once_flag made;
    std::unique_ptr<const ComputeOrder> order;
    std::uint64_t used = 0;
  };

  void forget_oldest();

  std::mutex mutex_;
  std::map<Key, std::shared_ptr<Entry>> entries_;
  std::size_t bytes_ = 0;
  std::uint64_t now_ = 0;
};

}  // namespace plumb
