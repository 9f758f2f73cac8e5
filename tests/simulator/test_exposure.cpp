// SPDX-License-Identifier: Apache-2.0
#include "cache/support/programs.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/simulator/exposure.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/simulate.hpp"
#include "simulator/support/models.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

SimTime exposed_on(const RankTimeline& rank) {
  SimTime sum{0};
  for (const ComputeTimes& times : rank.compute)
    sum += times.exposed;
  return sum;
}

// What a log of the run would hold.
Timeline as_logged(const Program& program, const Timeline& simulated) {
  Timeline logged = simulated;
  logged.step = SimTime(0);
  for (std::size_t r = 0; r < logged.ranks.size(); ++r) {
    for (ComputeTimes& times : logged.ranks[r].compute)
      times.exposed = SimTime(0);
    for (std::size_t i = 0; i < logged.ranks[r].comm_done.size(); ++i) {
      const CommKind kind = program.ranks[r].comm[i].kind;
      if (kind == CommKind::add || kind == CommKind::zero) logged.ranks[r].comm_done[i] = SimTime(0);
    }
  }
  for (MessageTimes& times : logged.messages)
    times.units = 0;
  return logged;
}

}  // namespace

TEST_CASE("wait, queue and wire add up to the exposed communication of every rank", "[simulator]") {
  Dice dice(77);
  Exposure all;
  for (int round = 0; round < 150; ++round) {
    const Program program = random_program(dice);
    CAPTURE(describe(program));
    const CostModel costs = random_model(dice, program.layout.num_chunks());
    const Timeline timeline = simulate(program, costs);
    const std::vector<Exposure> parts = exposure(program, timeline);
    for (std::size_t r = 0; r < parts.size(); ++r) {
      REQUIRE(parts[r].total() == exposed_on(timeline.ranks[r]));
      REQUIRE(parts[r].wait >= SimTime(0));
      REQUIRE(parts[r].queue >= SimTime(0));
      REQUIRE(parts[r].wire >= SimTime(0));
      all.wait += parts[r].wait;
      all.queue += parts[r].queue;
      all.wire += parts[r].wire;
    }
  }
  CHECK(all.queue > SimTime(0));
  CHECK(all.wire > SimTime(0));
}

TEST_CASE("a latency is exposed on the wire", "[simulator]") {
  const Layout layout(2, 1, 4);
  const DepthMap depth(4, 2, {2, 4});
  const Program program = lower(one_f_one_b(layout), depth, Policy::naive);
  const auto of_second = [&](const CostModel& costs) { return exposure(program, simulate(program, costs))[1]; };
  const Exposure latency = of_second(latency_only(us(300)));
  CHECK(latency.wire > SimTime(0));
  CHECK(latency.queue == SimTime(0));
}

TEST_CASE("a timeline with what a log holds is completed to the one it came from", "[simulator]") {
  Dice dice(78);
  for (int round = 0; round < 60; ++round) {
    const Program program = random_program(dice);
    CAPTURE(describe(program));
    const CostModel costs = random_model(dice, program.layout.num_chunks());
    const Timeline simulated = simulate(program, costs);
    Timeline logged = as_logged(program, simulated);
    complete_measured(program, logged);
    REQUIRE(logged.step == simulated.step);
    for (std::size_t r = 0; r < logged.ranks.size(); ++r) {
      REQUIRE(logged.ranks[r].comm_done == simulated.ranks[r].comm_done);
      for (std::size_t i = 0; i < logged.ranks[r].compute.size(); ++i)
        REQUIRE(logged.ranks[r].compute[i].exposed == simulated.ranks[r].compute[i].exposed);
    }
    const SimReport report = make_report(program, costs, logged);
    REQUIRE(report.traffic_equals_formula);
    REQUIRE(report.memory_within_slots);
  }
}
