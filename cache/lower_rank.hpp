// SPDX-License-Identifier: Apache-2.0
//
// lower_rank.hpp (private): from what the planner told about a rank to its program: steps, slots, waits, releases.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumb/cache/planner.hpp"
#include "plumb/cache/program.hpp"

namespace plumb {

// When the plan has a step begin and finish. Slots are shared out by these times; they never decide correctness.
struct PlannedTimes {
  std::int64_t start = 0;
  std::int64_t end = 0;  // computed, sent, arrived, added
};

// What the planner told, in the common order.
struct PlanRecord {
  static constexpr std::int32_t compute = -1;

  PlanRecord(const Schedule& schedule, const Routing& routing);

  // The planner's sink.
  void compute_starts(RankId rank, std::int32_t, std::int64_t start, std::int64_t end) {
    order[rank.index()].push_back(compute);
    computes[rank.index()].push_back({start, end});
  }
  void message_starts(const Message& message, std::int64_t start, std::int64_t, std::int64_t) {
    const Ends& ends = ends_[message.transfer.index()];
    const auto number = static_cast<std::int32_t>(messages.size());
    order[ends.from.index()].push_back(number);
    order[ends.to.index()].push_back(number);
    messages.push_back(message);
    message_starts_at.push_back(start);
  }

  std::vector<Message> messages;
  std::vector<std::int64_t> message_starts_at;
  std::vector<std::vector<std::int32_t>> order;     // [rank]: numbers of messages, or `compute` for the next of its row
  std::vector<std::vector<PlannedTimes>> computes;  // [rank]

 private:
  struct Ends {
    RankId from;
    RankId to;
  };
  std::vector<Ends> ends_;  // [transfer]
};

// Walks one rank's part of the plan once. Adds stand where they become possible: after the arrival of the child's sum
// and after this rank's own contributions, children in the fixed order of Holding::children. `program` has everything
// but ranks and messages; it is given those of the record.
RankProgram lower_rank(const Program& program, const std::vector<Action>& row, const PlanRecord& plan, RankId rank,
                       const PlanCosts& costs);

}  // namespace plumb
