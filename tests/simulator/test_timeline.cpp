// SPDX-License-Identifier: Apache-2.0
//
// The rules that a timeline must obey, checked one by one on finished timelines and not by a second simulator. Where
// messages occupy no link the equations below have one solution only, so that they decide the whole timeline.
#include <algorithm>
#include <map>
#include <tuple>

#include "cache/support/programs.hpp"
#include "plumb/simulator/simulate.hpp"
#include "plumb/simulator/timeline.hpp"
#include "simulator/support/models.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

struct Case {
  Program program;
  CostModel costs;
  Timeline timeline;

  SimTime ready(RankId rank, Range waits) const {
    SimTime last{0};
    for (const Wait& wait : program.ranks[rank.index()].waits_of(waits)) {
      last = std::max(last, timeline.finished(rank, wait));
    }
    return last;
  }
  SimTime eligible(std::size_t message) const {
    return std::max(timeline.messages[message].send_ready, timeline.messages[message].posted);
  }
  bool occupies(std::size_t message) const {
    return timeline.messages[message].sent > timeline.messages[message].start;
  }
  bool holds(std::size_t message, SimTime at) const {
    return timeline.messages[message].start <= at && at < timeline.messages[message].sent;
  }
  bool shares_an_end(std::size_t a, std::size_t b) const {
    return program.sender(MessageId(a)) == program.sender(MessageId(b)) ||
           program.receiver(MessageId(a)) == program.receiver(MessageId(b));
  }
  bool goes_before(std::size_t a, std::size_t b) const {
    const auto key = [&](std::size_t m) {
      return std::tuple(program.transfer_of(MessageId(m)).lane, timeline.messages[m].send_ready, m);
    };
    return key(a) < key(b);
  }
};

Case make_case(Dice& dice, ChannelOrder order = ChannelOrder::by_readiness) {
  Program program = random_program(dice, {.pp = 6, .vp = 3, .sublayers = 30, .microbatches = 6});
  CostModel costs = random_model(dice, program.layout.num_chunks());
  Timeline timeline = simulate(program, costs, {order});
  return {std::move(program), std::move(costs), std::move(timeline)};
}

void check_steps(const Case& c) {
  for (std::size_t r = 0; r < c.program.ranks.size(); ++r) {
    const RankProgram& rank = c.program.ranks[r];
    const RankTimeline& times = c.timeline.ranks[r];
    SimTime previous_end{0};
    for (std::size_t i = 0; i < rank.compute.size(); ++i) {
      REQUIRE(times.compute[i].start == std::max(previous_end, c.ready(RankId(r), rank.compute[i].waits)));
      REQUIRE(times.compute[i].end == times.compute[i].start + c.costs.time_of(rank.compute[i].compute));
      REQUIRE(times.compute[i].exposed >= SimTime(0));
      REQUIRE(times.compute[i].exposed <= times.compute[i].start - previous_end);
      previous_end = times.compute[i].end;
    }
    for (std::size_t i = 0; i < rank.comm.size(); ++i) {
      const CommStep& step = rank.comm[i];
      const SimTime ready = c.ready(RankId(r), step.waits);
      if (step.kind == CommKind::send) {
        REQUIRE(c.timeline.messages[step.message.index()].send_ready == ready);
        REQUIRE(times.comm_done[i] == c.timeline.messages[step.message.index()].sent);
      } else if (step.kind == CommKind::receive) {
        REQUIRE(c.timeline.messages[step.message.index()].posted == ready);
        REQUIRE(times.comm_done[i] == c.timeline.messages[step.message.index()].arrived);
      } else {
        REQUIRE(times.comm_done[i] == ready);
      }
    }
  }
}

// Sorted, half open, not overlapping: what one network end is busy with.
using Busy = std::vector<std::pair<SimTime, SimTime>>;

bool is_covered(SimTime from, SimTime to, Busy busy) {
  std::sort(busy.begin(), busy.end());
  for (const auto& [start, end] : busy) {
    if (start <= from) from = std::max(from, end);
  }
  return from >= to;
}

void check_network(const Case& c) {
  std::map<RankId, Busy> egress;
  std::map<RankId, Busy> ingress;
  const std::size_t num_messages = c.timeline.messages.size();
  for (std::size_t m = 0; m < num_messages; ++m) {
    const MessageTimes& times = c.timeline.messages[m];
    REQUIRE(times.start >= c.eligible(m));
    if (!c.occupies(m)) {
      REQUIRE(times.start == c.eligible(m));
      continue;
    }
    egress[c.program.sender(MessageId(m))].emplace_back(times.start, times.sent);
    ingress[c.program.receiver(MessageId(m))].emplace_back(times.start, times.sent);
  }
  for (auto* side : {&egress, &ingress}) {
    for (auto& [rank, busy] : *side) {
      std::sort(busy.begin(), busy.end());
      for (std::size_t i = 1; i < busy.size(); ++i)
        REQUIRE(busy[i - 1].second <= busy[i].first);
    }
  }
  for (std::size_t m = 0; m < num_messages; ++m) {
    if (!c.occupies(m)) continue;
    const SimTime start = c.timeline.messages[m].start;
    Busy both = egress[c.program.sender(MessageId(m))];
    const Busy& other = ingress[c.program.receiver(MessageId(m))];
    both.insert(both.end(), other.begin(), other.end());
    REQUIRE(is_covered(c.eligible(m), start, both));
    // Whoever should have gone first was held back by a third message.
    for (std::size_t k = 0; k < num_messages; ++k) {
      const bool was_passed_over = k != m && c.occupies(k) && c.shares_an_end(k, m) && c.goes_before(k, m) &&
                                   c.eligible(k) <= start && c.timeline.messages[k].start > start;
      if (!was_passed_over) continue;
      bool held_back = false;
      for (std::size_t j = 0; j < num_messages; ++j) {
        held_back = held_back || (j != m && c.occupies(j) && c.shares_an_end(j, k) && c.holds(j, start));
      }
      REQUIRE(held_back);
    }
  }
}

}  // namespace

TEST_CASE("every step starts when the last event it waits for has happened, no sooner and no later", "[simulator]") {
  Dice dice(11);
  for (int round = 0; round < 150; ++round) {
    const Case c = make_case(dice, static_cast<ChannelOrder>(dice.roll(0, 2)));
    CAPTURE(describe(c.program));
    check_steps(c);
  }
}

TEST_CASE("a network end serves one message at a time, never idles while one could start, and serves the best first",
          "[simulator]") {
  Dice dice(12);
  for (int round = 0; round < 60; ++round) {
    const Case c = make_case(dice);
    CAPTURE(describe(c.program));
    check_network(c);
  }
}

TEST_CASE("with queues the messages of a channel start in program order", "[simulator]") {
  Dice dice(13);
  for (int round = 0; round < 60; ++round) {
    const ChannelOrder order = dice.roll(0, 1) == 0 ? ChannelOrder::fifo_per_lane : ChannelOrder::fifo_merged;
    const Case c = make_case(dice, order);
    CAPTURE(describe(c.program));
    for (const RankProgram& rank : c.program.ranks) {
      std::map<std::tuple<CommKind, RankId, MessageLane>, SimTime> last;
      for (const CommStep& step : rank.comm) {
        if (step.kind != CommKind::send && step.kind != CommKind::receive) continue;
        const MessageLane lane = order == ChannelOrder::fifo_merged ? MessageLane::urgent : step.lane;
        SimTime& before = last[{step.kind, step.peer, lane}];
        REQUIRE(c.timeline.messages[step.message.index()].start >= before);
        before = c.timeline.messages[step.message.index()].start;
      }
    }
  }
}

TEST_CASE("the step ends with its last event", "[simulator]") {
  Dice dice(14);
  for (int round = 0; round < 40; ++round) {
    const Case c = make_case(dice);
    SimTime last{0};
    for (const RankTimeline& rank : c.timeline.ranks) {
      for (const ComputeTimes& times : rank.compute)
        last = std::max(last, times.end);
      for (const SimTime done : rank.comm_done)
        last = std::max(last, done);
    }
    REQUIRE(c.timeline.step == last);
  }
}
