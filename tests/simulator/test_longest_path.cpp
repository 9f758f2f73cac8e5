// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "cache/support/edit.hpp"
#include "cache/support/programs.hpp"
#include "plumb/simulator/longest_path.hpp"
#include "plumb/simulator/network.hpp"
#include "plumb/simulator/simulate.hpp"
#include "simulator/support/models.hpp"
#include "simulator/support/networks.hpp"
#include "simulator/support/timelines.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

// The naive way: every time again and again from all it waits for, until none changes.
SimTime fixed_point(const Program& program, const CostModel& costs, SimTime latency) {
  Timeline now;
  now.messages.resize(program.messages.size());
  for (const RankProgram& rank : program.ranks) {
    now.ranks.push_back({std::vector<ComputeTimes>(rank.compute.size()), std::vector<SimTime>(rank.comm.size())});
  }
  for (bool changed = true; changed;) {
    changed = false;
    now.step = SimTime(0);
    const auto set = [&](SimTime& time, SimTime value) {
      changed |= time != value;
      time = value;
      now.step = std::max(now.step, value);
    };
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      const RankProgram& rank = program.ranks[r];
      const auto waited = [&](Range waits) {
        SimTime latest{0};
        for (const Wait& wait : rank.waits_of(waits))
          latest = std::max(latest, now.finished(RankId(r), wait));
        return latest;
      };
      for (std::size_t i = 0; i < rank.compute.size(); ++i) {
        const SimTime before = i == 0 ? SimTime(0) : now.ranks[r].compute[i - 1].end;
        set(now.ranks[r].compute[i].end,
            std::max(before, waited(rank.compute[i].waits)) + costs.time_of(rank.compute[i].compute));
      }
      for (std::size_t i = 0; i < rank.comm.size(); ++i) {
        const CommStep& step = rank.comm[i];
        SimTime& done = now.ranks[r].comm_done[i];
        if (step.kind == CommKind::add || step.kind == CommKind::zero) {
          set(done, waited(step.waits));
          continue;
        }
        MessageTimes& message = now.messages[step.message.index()];
        const bool sending = step.kind == CommKind::send;
        set(sending ? message.send_ready : message.posted, waited(step.waits));
        set(done, std::max(message.send_ready, message.posted) + (sending ? SimTime(0) : latency));
      }
    }
  }
  return now.step;
}

Timeline without_exposure(Timeline timeline) {
  for (RankTimeline& rank : timeline.ranks) {
    for (ComputeTimes& times : rank.compute)
      times.exposed = SimTime(0);
  }
  return timeline;
}

}  // namespace

TEST_CASE("longest path, events and the naive fixed point agree to the picosecond", "[simulator]") {
  Dice dice(631);
  for (int round = 0; round < 80; ++round) {
    const Program program = random_program(dice, {.pp = 5, .vp = 3, .sublayers = 24, .microbatches = 6});
    CAPTURE(describe(program));
    const SimTime latency(dice.roll(0, 900));
    const CostModel costs(
        action_times(SimTime(dice.roll(0, 2000)), SimTime(dice.roll(0, 2000)), SimTime(dice.roll(0, 2000))),
        Link{latency, SimTime(0), SimTime(0)}, storage_bytes);
    LongestPath path(program, storage_bytes, uniform_network(program.layout.pp(), no_limit, latency));
    REQUIRE(path.step(costs) == fixed_point(program, costs, latency));
    REQUIRE(first_difference(path.timeline(), simulate(program, costs)) == "");
  }
}

TEST_CASE("where nothing is shared the longest path is what the network does, also for other costs", "[simulator]") {
  Dice dice(632);
  for (int round = 0; round < 150; ++round) {
    const Program program = random_program(dice);
    CAPTURE(describe(program));
    NetworkModel network = random_unshared_network(dice, program.layout.pp());
    REQUIRE(what_is_shared(program, storage_bytes, network) == "");
    LongestPath path(program, storage_bytes, network);
    for (int again = 0; again < 2; ++again) {
      const CostModel costs = random_model(dice, program.layout.num_chunks());
      const Timeline expected = simulate_network(program, costs, network);
      REQUIRE(path.step(costs, network) == expected.step);
      const bool eager = network.protocol.eager_limit_bytes > 0;
      const Timeline found = path.timeline();
      REQUIRE((eager ? first_difference(without_exposure(found), without_exposure(expected))
                     : first_difference(found, expected)) == "");
      for (NetworkTier& tier : network.tiers)
        tier.latency += SimTime(dice.roll(0, 300));
      for (NetworkResource& resource : network.resources)
        resource.bytes_per_s = 1e10 * dice.roll(1, 40);
      network.protocol.launch += SimTime(dice.roll(0, 50));
    }
  }
}

TEST_CASE("what is shared is named, and no path is built of it", "[simulator]") {
  const Program program = small_program(Policy::cached);
  NetworkModel network = uniform_network(4, 1e9, SimTime(0));
  CHECK(what_is_shared(program, storage_bytes, network) == "rank 0 egress may carry several messages at once");
  CHECK_THROWS_WITH(LongestPath(program, storage_bytes, network),
                    "the step is not a longest path: rank 0 egress may carry several messages at once");
  network.streams = CommStreams::per_direction;
  CHECK(what_is_shared(program, storage_bytes, network) != "");
  // With forwards only, all that leaves a rank is on one stream, and all that enters on another.
  CHECK(what_is_shared(small_program(Policy::cached, true), storage_bytes, network) == "");
  network.streams = CommStreams::single;
  CHECK(what_is_shared(program, storage_bytes, network) == "");
  network.tiers[0].uplink_up.assign(4, ResourceId(0));
  CHECK(what_is_shared(program, storage_bytes, network) == "rank 0 egress may carry several messages at once");
  network.tiers[0].uplink_up.clear();
  network.protocol.compute_share_while_active = 0.1;
  CHECK(what_is_shared(program, storage_bytes, network) == "messages slow down computations");
}

TEST_CASE("a path built for other streams or eager messages is not used", "[simulator]") {
  const Program program = small_program(Policy::cached);
  NetworkModel network = uniform_network(4, no_limit, SimTime(0));
  LongestPath path(program, storage_bytes, network);
  const SimTime first = path.step(free_links());
  network.streams = CommStreams::single;
  CHECK_THROWS_WITH(path.step(free_links(), network), Catch::Contains("other streams"));
  network.streams = CommStreams::unordered;
  network.protocol.eager_limit_bytes = 1 << 20;
  CHECK_THROWS_WITH(path.step(free_links(), network), Catch::Contains("eager"));
  CHECK(path.step(free_links()) == first);
}

TEST_CASE("a program that gets stuck has no longest path", "[simulator]") {
  Dice dice(633);
  int num_stuck = 0;
  for (int round = 0; round < 20; ++round) {
    Program program = random_program(dice, {.pp = 4, .vp = 3, .sublayers = 20, .microbatches = 5});
    for (RankProgram& rank : program.ranks)
      order_by_own_use(rank);
    NetworkModel network = uniform_network(program.layout.pp(), no_limit, SimTime(5));
    network.streams = CommStreams::single;
    bool stuck = false;
    try {
      simulate_network(program, free_links(), network);
    } catch (const SimulationStuck&) {
      stuck = true;
    }
    try {
      LongestPath(program, storage_bytes, network);
      REQUIRE_FALSE(stuck);
    } catch (const SimulationStuck&) {
      REQUIRE(stuck);
      ++num_stuck;
    }
  }
  CHECK(num_stuck > 2);
}
