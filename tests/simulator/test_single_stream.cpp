// SPDX-License-Identifier: Apache-2.0
//
// A transport with one communication stream per rank: everything a rank sends and receives goes through one queue, one
// message at a time. A program for it should be planned with such ranks in mind.
#include "cache/support/layouts.hpp"
#include "plumb/cache/deadlock.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/schedule/named.hpp"
#include "plumb/simulator/simulate.hpp"
#include "simulator/support/models.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

constexpr SimOptions single_stream{.order = ChannelOrder::single_stream, .duplex = Duplex::half};

Program planned_for(const Schedule& schedule, const DepthMap& depth, Policy policy, const CostModel& costs,
                    Duplex duplex) {
  LowerOptions options;
  options.costs = plan_costs(costs);
  options.costs.duplex = duplex;
  return lower(schedule, depth, policy, options);
}

double step_us(const Program& program, const CostModel& costs, const SimOptions& options) {
  return to_us(simulate(program, costs, options).step);
}

}  // namespace

TEST_CASE("on one stream per rank a program planned for it costs little, one planned for lanes much", "[simulator]") {
  // K3: 93 decoder layers of two sublayers, 12 to a block.
  const Layout layout(16, 2, 64);
  const Schedule schedule = interleaved(layout, 16);
  const DepthMap depth(186, 24, DepthMap::even_cuts(186, 93, layout.num_chunks()));
  const CostModel costs = unit_time(from_us(100, "unit"));
  const Program for_lanes = planned_for(schedule, depth, Policy::direct, costs, Duplex::full);
  const Program for_stream = planned_for(schedule, depth, Policy::direct, costs, Duplex::half);
  const double on_lanes = step_us(for_lanes, costs, {});
  const double from_lanes = step_us(for_lanes, costs, single_stream) / on_lanes - 1;
  const double from_stream = step_us(for_stream, costs, single_stream) / on_lanes - 1;
  INFO("planned for lanes " << from_lanes << ", planned for one stream " << from_stream);
  CHECK(from_lanes > 0.2);
  CHECK(from_stream < 0.15);
  CHECK(from_stream < from_lanes / 3);
}

TEST_CASE("on one stream per rank messages run in program order, one at a time at both ends", "[simulator]") {
  Dice dice(51);
  for (int round = 0; round < 40; ++round) {
    const int pp = dice.roll(2, 5);
    const Layout layout(pp, dice.roll(1, 3), pp * dice.roll(1, 2));
    const DepthMap depth = random_depth(dice, layout.num_chunks(), 30);
    const CostModel costs = unit_time(from_us(dice.roll(1, 400), "unit"));
    const Policy policy = dice.roll(0, 1) == 0 ? Policy::cached : Policy::direct;
    const Program program = planned_for(interleaved(layout, default_group(layout)), depth, policy, costs,
                                        dice.roll(0, 1) == 0 ? Duplex::full : Duplex::half);
    const Timeline timeline = simulate(program, costs, single_stream);
    for (const RankProgram& rank : program.ranks) {
      SimTime free{0};
      for (const CommStep& step : rank.comm) {
        if (step.kind != CommKind::send && step.kind != CommKind::receive) continue;
        const MessageTimes& times = timeline.messages[step.message.index()];
        REQUIRE(times.start >= free);
        free = times.sent;
      }
    }
  }
}

TEST_CASE("a message that occupies nothing is done when the one before it in its queue starts", "[simulator]") {
  Dice dice(52);
  for (int round = 0; round < 60; ++round) {
    const int pp = dice.roll(2, 5);
    const Layout layout(pp, dice.roll(1, 3), pp * dice.roll(1, 2));
    const DepthMap depth = random_depth(dice, layout.num_chunks(), 30);
    const Link link{SimTime(0), us(dice.roll(1, 400)), SimTime(0)};  // gradients take no time
    const CostModel costs(action_times(us(1000), us(1000), us(1000)), link, storage_bytes);
    const Program program =
        planned_for(interleaved(layout, default_group(layout)), depth, Policy::cached, costs, Duplex::full);
    for (const ChannelOrder order : {ChannelOrder::fifo_merged, ChannelOrder::single_stream}) {
      const Timeline timeline = simulate(program, costs, {.order = order});
      for (std::size_t r = 0; r < program.ranks.size(); ++r) {
        for (std::size_t i = 0; i < program.ranks[r].comm.size(); ++i) {
          const CommStep& step = program.ranks[r].comm[i];
          if (step.kind != CommKind::send && step.kind != CommKind::receive) continue;
          const MessageTimes& times = timeline.messages[step.message.index()];
          REQUIRE(timeline.ranks[r].comm_done[i] == times.sent);
          const bool gradient = program.messages[step.message.index()].direction == Direction::backward;
          if (gradient) REQUIRE(times.sent == times.start);
        }
      }
    }
  }
}
