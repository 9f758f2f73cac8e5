// SPDX-License-Identifier: Apache-2.0
//
// step_memory.hpp (private): what both workers of a rank share within a step: slots, their lives, contribution counts.
//
// A slot becomes free in the step that finishes last among its users, before that step is announced as finished;
// whoever waits for all users therefore finds it free. Threads: any; each release is done by exactly one of them.
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "contributions.hpp"
#include "plumb/runtime/block_store.hpp"
#include "rank_plan.hpp"

namespace plumb {

class StepMemory {
 public:
  StepMemory(const RankPlan& plan, BlockStore& store);

  // Before a step: nothing is live, nothing counted.
  void reset();

  BlockStore& store() { return store_; }
  ContributionCounts& counts() { return counts_; }

  // The slot is free and becomes the content's, or already holds it; otherwise SlotError.
  void take(const PlannedOperand& operand, std::size_t compute);
  void take(const PlannedSegment& segment, std::int32_t comm);

  // The sum is complete, or ContributionError.
  void check_complete(std::int32_t counter, std::size_t compute) const;
  void check_complete(std::int32_t counter, std::int32_t comm) const;

  // Call when the step has finished and before anybody is told.
  void compute_finished(std::size_t compute) { finish(plan_.releases_after_compute[compute]); }
  void comm_finished(std::int32_t comm) { finish(plan_.releases_after_comm[static_cast<std::size_t>(comm)]); }

  // After a step: every sum got all its contributions and every slot was released.
  void check_end() const;

 private:
  bool take(Slot slot, std::uint64_t content, bool fills) {
    return fills ? store_.occupy(slot, content) : store_.holds(slot, content);
  }
  [[noreturn]] void refuse(std::string action, Slot slot, std::uint64_t content, bool fills) const;
  [[noreturn]] void refuse_sum(std::string action, const PlannedCounter& counter, std::int32_t counted) const;
  void finish(std::span<const std::int32_t> releases);

  const RankPlan& plan_;
  BlockStore& store_;
  ContributionCounts counts_;
  std::unique_ptr<std::atomic<std::int32_t>[]> users_left_;  // [release]
};

}  // namespace plumb
