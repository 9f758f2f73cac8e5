// SPDX-License-Identifier: Apache-2.0
//
// rank_plan.hpp (private): one rank's program, unfolded once into the tables that the step machine walks.
//
// The program says what each step waits for; the plan turns that around (who waits for me), splits the communication
// list into channel queues, and writes down what every slot must hold when a step touches it. Immutable once made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/runtime/block_store.hpp"

namespace plumb {

// Lists of small integers, one per key, in one allocation.
class Lists {
 public:
  // entries: (key, value) in the order in which each list shall keep its values.
  struct Entry {
    std::int32_t key = 0;
    std::int32_t value = 0;
  };
  Lists() = default;
  Lists(std::size_t num_keys, std::span<const Entry> entries);
  std::span<const std::int32_t> operator[](std::size_t key) const {
    return std::span(values_).subspan(begin_[key], begin_[key + 1] - begin_[key]);
  }

 private:
  std::vector<std::uint32_t> begin_;
  std::vector<std::int32_t> values_;
};

struct PlannedOperand {
  Role role = Role::source;
  bool first_touch = false;
  bool fills = false;  // the slot holds nothing before this step
  Slot slot;
  BlockId block;
  std::uint64_t content = 0;  // packed SlotContent before (or, if it fills, after) the step
  std::int32_t counter = -1;  // grad_source, grad_closed: index into the contribution counts
};

struct PlannedSegment {
  Slot slot;
  std::uint64_t content = 0;
  bool fills = false;
  std::int32_t counter = -1;  // add: of the accumulator; backward send: of the sum that leaves
};

// Messages that are posted one after the other: one (peer, lane) and one way.
struct ChannelQueue {
  RankId peer;
  MessageLane lane = MessageLane::urgent;
  bool sends = false;
  std::vector<std::int32_t> steps;  // indices into RankProgram::comm, in list order
};

// A slot's end of life: it is free once `num_users` steps have finished.
struct PlannedRelease {
  Slot slot;
  std::int32_t num_users = 0;
};

// One place of contributions: a holding of this rank and a microbatch.
struct PlannedCounter {
  BlockId block;
  Microbatch microbatch;
  std::int32_t expected = 0;
};

struct RankPlan {
  std::shared_ptr<const Program> program;
  RankId rank;

  const RankProgram& steps() const { return program->ranks[rank.index()]; }
  std::size_t num_compute() const { return steps().compute.size(); }
  std::size_t num_comm() const { return steps().comm.size(); }

  std::vector<PlannedOperand> operands;
  std::vector<Range> operands_of_compute;
  std::vector<PlannedSegment> segments;
  std::vector<Range> segments_of_comm;
  std::vector<ChannelQueue> channels;
  std::vector<std::int32_t> channel_of_comm;  // -1 for add, zero
  std::vector<Microbatch> microbatch_of_comm;

  // waits turned around
  std::vector<std::int32_t> num_waits_of_comm;          // compute and comm steps
  std::vector<std::int32_t> num_comm_waits_of_compute;  // comm steps only: compute steps run in order
  Lists comm_after_compute;
  Lists comm_after_comm;
  Lists compute_after_comm;

  std::vector<PlannedRelease> releases;
  Lists releases_after_compute;
  Lists releases_after_comm;

  std::vector<PlannedCounter> counters;
  std::size_t most_operands = 0;  // of one role in one step
  std::size_t most_segments = 0;  // of one message
};

// Throws InputError when an index of the program is out of range, or a wait points forward in a compute list.
RankPlan make_rank_plan(std::shared_ptr<const Program> program, RankId rank);

}  // namespace plumb
