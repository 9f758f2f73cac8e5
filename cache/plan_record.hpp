// SPDX-License-Identifier: Apache-2.0
//
// plan_record.hpp (private): what the planner told, rank by rank, for lowering.
#pragma once

#include <cstdint>
#include <vector>

#include "plumb/cache/planner.hpp"
#include "plumb/cache/program.hpp"

namespace plumb {

// When the plan has a step begin and finish. Slots are shared out by these times; they never decide correctness.
struct PlannedTimes {
  std::int64_t start = 0;
  std::int64_t end = 0;  // computed, sent, arrived, added
};

// What the planner told, in the common order, for each rank in one piece: looking messages up would be a cache miss for
// each end.
struct PlanRecord {
  struct Start {
    static constexpr std::int32_t compute = -1;

    std::int64_t at = 0;
    std::int32_t message = compute;  // its number; `compute` for the next of the rank's row
    std::int32_t hop = 0;            // twice its transfer, plus one backward
    Microbatch microbatch;
  };

  PlanRecord(const Schedule& schedule, const Routing& routing);

  // The planner's sink.
  void compute_starts(RankId rank, std::int32_t, std::int64_t start, std::int64_t end) {
    order[rank.index()].push_back({start, Start::compute, 0, {}});
    computes[rank.index()].push_back({start, end});
  }
  void message_starts(const Message& message, std::int64_t start, std::int64_t, std::int64_t) {
    const Ends& ends = ends_[message.transfer.index()];
    const std::int32_t hop = 2 * message.transfer.value + (message.direction == Direction::backward ? 1 : 0);
    const Start entry{start, static_cast<std::int32_t>(messages.size()), hop, message.microbatch};
    order[ends.from.index()].push_back(entry);
    order[ends.to.index()].push_back(entry);
    messages.push_back(message);
  }

  void mark();
  void repeat(std::size_t times, std::int64_t duration, int microbatches);

  // What was told as a repetition: the period that begins there, and then the same again, `times` over. The order has
  // it once.
  struct Repetition {
    struct Part {
      std::size_t begin = 0;  // in the rank's order
      std::size_t period = 0;
    };
    std::size_t times = 0;
    std::int64_t duration = 0;
    int microbatches = 0;
    std::int32_t messages = 0;
    std::vector<Part> ranks;

    // What an entry of the period becomes that many periods later.
    Start later(const Start& start, std::size_t periods) const {
      const auto n = static_cast<std::int32_t>(periods);
      if (start.message == Start::compute) return {start.at + n * duration, Start::compute, 0, {}};
      return {start.at + n * duration, start.message + n * messages, start.hop,
              Microbatch(start.microbatch.value + n * microbatches)};
    }
  };

  // visit(start) for all that a rank starts, repetitions included.
  template <class Visit>
  void for_each_start(RankId rank, Visit&& visit) const {
    const std::vector<Start>& starts = order[rank.index()];
    std::size_t next = 0;
    for (const Repetition& repetition : repetitions) {
      const auto [begin, period] = repetition.ranks[rank.index()];
      for (; next < begin; ++next)
        visit(starts[next]);
      for (std::size_t periods = 0; periods <= repetition.times; ++periods) {
        for (std::size_t i = begin; i < begin + period; ++i)
          visit(repetition.later(starts[i], periods));
      }
      next = begin + period;
    }
    for (; next < starts.size(); ++next)
      visit(starts[next]);
  }

  std::vector<Message> messages;
  std::vector<Repetition> repetitions;
  std::vector<std::vector<Start>> order;            // [rank]
  std::vector<std::vector<PlannedTimes>> computes;  // [rank]

 private:
  struct Ends {
    RankId from;
    RankId to;
  };
  struct Lengths {
    std::size_t messages = 0;
    std::vector<std::size_t> order;  // [rank]
    std::vector<std::size_t> computes;
  };
  Lengths lengths() const;

  std::vector<Ends> ends_;  // [transfer]
  Lengths mark_;
};

}  // namespace plumb
