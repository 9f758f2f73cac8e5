// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cache/support/layouts.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/named.hpp"
#include "simulate_steps.hpp"
#include "simulator/support/models.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

constexpr Policy all_policies[] = {Policy::standard, Policy::naive, Policy::relay, Policy::cached, Policy::direct};

Program random_long_program(Dice& dice, const CostModel& costs, const Layout& layout, ScheduleKind kind) {
  const Policy policy = all_policies[dice.roll(0, 4)];
  const Residual residual = policy == Policy::standard ? Residual::standard : Residual::attnres_block;
  const DepthMap depth(24, 4, DepthMap::even_cuts(24, 24, layout.num_chunks()), residual);
  return lower(make_schedule({.kind = kind}, layout), depth, policy,
               {.post_ahead = dice.roll(0, 3), .costs = plan_costs(costs)});
}

CostModel random_costs(Dice& dice, int num_chunks) {
  if (dice.roll(0, 3) == 0) return random_model(dice, num_chunks);
  // Much at one instant: nothing takes time but one direction of the wire.
  if (dice.roll(0, 5) == 0) {
    return CostModel(action_times(SimTime(0), SimTime(0), SimTime(0)),
                     Link{SimTime(0), SimTime(dice.roll(0, 1)), SimTime(dice.roll(0, 2))}, storage_bytes);
  }
  return CostModel(action_times(us(1000), us(dice.roll(8, 12) * 100), us(1000)),
                   Link{us(dice.roll(0, 1) * 30), us(dice.roll(0, 4) * 50), us(dice.roll(0, 4) * 50)}, storage_bytes);
}

SimOptions random_options(Dice& dice) {
  constexpr ChannelOrder orders[] = {ChannelOrder::by_readiness, ChannelOrder::by_readiness,
                                     ChannelOrder::fifo_per_lane, ChannelOrder::fifo_merged};
  if (dice.roll(0, 5) == 0) return {.order = ChannelOrder::single_stream, .duplex = Duplex::half};
  return {.order = orders[dice.roll(0, 3)],
          .duplex = dice.roll(0, 3) == 0 ? Duplex::half : Duplex::full,
          .urgent_first = dice.roll(0, 3) > 0,
          .communication_waits_for_compute = dice.roll(0, 3) == 0};
}

bool equal(const Timeline& a, const Timeline& b) {
  const auto computes = [](const ComputeTimes& x, const ComputeTimes& y) {
    return x.start == y.start && x.end == y.end && x.exposed == y.exposed;
  };
  const auto ranks = [&](const RankTimeline& x, const RankTimeline& y) {
    return x.comm_done == y.comm_done &&
           std::equal(x.compute.begin(), x.compute.end(), y.compute.begin(), y.compute.end(), computes);
  };
  const auto messages = [](const MessageTimes& x, const MessageTimes& y) {
    return x.send_ready == y.send_ready && x.posted == y.posted && x.start == y.start && x.sent == y.sent &&
           x.arrived == y.arrived && x.units == y.units;
  };
  return a.step == b.step && std::equal(a.ranks.begin(), a.ranks.end(), b.ranks.begin(), b.ranks.end(), ranks) &&
         std::equal(a.messages.begin(), a.messages.end(), b.messages.begin(), b.messages.end(), messages);
}

}  // namespace

TEST_CASE("a simulation that repeats its steady part is the one that goes through every step", "[simulator]") {
  constexpr ScheduleKind kinds[] = {ScheduleKind::gpipe,      ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                                    ScheduleKind::looped_bfs, ScheduleKind::zb_h1,       ScheduleKind::zb_v,
                                    ScheduleKind::dualpipe_v, ScheduleKind::v_half};
  Dice dice(21);
  int repeated = 0;
  constexpr int rounds = 100;
  for (int round = 0; round < rounds; ++round) {
    const ScheduleKind kind = kinds[dice.roll(0, 7)];
    const bool vee = placement_of(kind) == Placement::vee;
    const int vp = vee ? 2 : kind == ScheduleKind::one_f_one_b || kind == ScheduleKind::gpipe ? 1 : dice.roll(1, 3);
    const int pp = dice.roll(1, 6);
    const Layout layout(pp, vp, pp * dice.roll(10, 24), placement_of(kind));
    const CostModel costs = random_costs(dice, layout.num_chunks());
    const Program program = random_long_program(dice, costs, layout, kind);
    const SimOptions options = random_options(dice);
    // Some of these know too little of their program.
    const std::int32_t open_ahead = dice.roll(0, 2) == 0 ? dice.roll(1, 32) : 128;
    CAPTURE(round, open_ahead, program.schedule_name, pp, vp, layout.microbatches(), program.post_ahead);
    const std::optional<RepeatedTimeline> repeating = simulate_repeating(program, costs, options, open_ahead);
    if (!repeating) continue;
    if (repeating->num_repeated > 0) ++repeated;
    REQUIRE(equal(repeating->timeline, simulate_step_by_step(program, costs, options)));
  }
  CHECK(4 * repeated > rounds);  // else the test says little
}

namespace {

// One change somewhere that keeps all indices in range.
void damage(Dice& dice, Program& program) {
  RankProgram& rank = program.ranks[static_cast<std::size_t>(dice.roll(0, program.layout.pp() - 1))];
  const auto any_of = [&](auto& list) -> auto& {
    return list[static_cast<std::size_t>(dice.roll(0, static_cast<int>(list.size()) - 1))];
  };
  CommStep& step = any_of(rank.comm);
  CommStep& other = any_of(rank.comm);
  switch (dice.roll(0, 7)) {
    case 0:
      step.kind = static_cast<CommKind>(dice.roll(0, 3));
      break;
    case 1:
      step.message = MessageId(dice.roll(0, static_cast<int>(program.messages.size()) - 1));
      break;
    case 2:
      step.waits.end = step.waits.begin;
      break;
    case 3:
      any_of(rank.waits) = any_of(rank.waits);
      break;
    case 4:
      std::swap(step, other);
      break;
    case 5:
      step.segments = other.segments;
      break;
    case 6:
      std::swap(any_of(rank.order), any_of(rank.order));
      break;
    default:
      any_of(program.messages).transfer = any_of(program.messages).transfer;
      break;
  }
}

std::optional<Timeline> step_by_step(const Program& program, const CostModel& costs, const SimOptions& options) {
  try {
    return simulate_step_by_step(program, costs, options);
  } catch (const InputError&) {
  } catch (const SimulationStuck&) {
  }
  return {};
}

}  // namespace

TEST_CASE("of a damaged program a simulation that repeats itself says what going through it says, or nothing",
          "[simulator]") {
  Dice dice(22);
  int repeated = 0;
  constexpr int rounds = 150;
  for (int round = 0; round < rounds; ++round) {
    const int pp = dice.roll(2, 5);
    const Layout layout(pp, dice.roll(1, 2), pp * dice.roll(10, 20), Placement::loop);
    const CostModel costs = random_costs(dice, layout.num_chunks());
    constexpr ScheduleKind kinds[] = {ScheduleKind::interleaved, ScheduleKind::looped_bfs, ScheduleKind::zb_h1};
    Program program = random_long_program(dice, costs, layout, kinds[dice.roll(0, 2)]);
    damage(dice, program);
    const SimOptions options = random_options(dice);
    CAPTURE(round, program.schedule_name, pp, layout.microbatches());
    const std::optional<RepeatedTimeline> repeating = simulate_repeating(program, costs, options, dice.roll(16, 128));
    if (!repeating) continue;
    if (repeating->num_repeated > 0) ++repeated;
    const std::optional<Timeline> plain = step_by_step(program, costs, options);
    REQUIRE(plain.has_value());
    REQUIRE(equal(repeating->timeline, *plain));
  }
  CHECK(20 * repeated > rounds);
}

TEST_CASE("a period does not begin between two events of one instant", "[simulator]") {
  const Layout layout(2, 2, 64);
  const CostModel costs(action_times(SimTime(0), SimTime(0), SimTime(0)), Link{SimTime(0), SimTime(1), SimTime(0)},
                        storage_bytes);
  const DepthMap depth(4, 4, DepthMap::even_cuts(4, 4, 4), Residual::standard);
  const Program program = lower(make_schedule({.kind = ScheduleKind::interleaved}, layout), depth, Policy::standard,
                                {.post_ahead = 2, .costs = plan_costs(costs)});
  const SimOptions options{.order = ChannelOrder::single_stream};
  const std::optional<RepeatedTimeline> repeating = simulate_repeating(program, costs, options, 128);
  REQUIRE(repeating.has_value());
  CHECK(equal(repeating->timeline, simulate_step_by_step(program, costs, options)));
}

TEST_CASE("an order that has what is waited for behind the one that waits is simulated all the same", "[simulator]") {
  const Layout layout(3, 2, 48);
  const DepthMap depth(24, 4, DepthMap::even_cuts(24, 24, 6), Residual::standard);
  Program program = lower(make_schedule({.kind = ScheduleKind::zb_h1}, layout), depth, Policy::standard);
  int swapped = 0;
  for (RankProgram& rank : program.ranks) {
    for (std::size_t i = 0; i + 1 < rank.order.size(); ++i) {
      if (!rank.order[i].comm || rank.order[i + 1].comm) continue;
      const auto waits = rank.waits_of(rank.compute[rank.order[i + 1].index].waits);
      const Wait received(Wait::On::comm, static_cast<std::int32_t>(rank.order[i].index));
      if (std::find(waits.begin(), waits.end(), received) == waits.end()) continue;
      std::swap(rank.order[i], rank.order[i + 1]);
      ++swapped;
      ++i;
    }
  }
  REQUIRE(swapped > 100);
  const CostModel costs = latency_only(us(100));
  const std::optional<RepeatedTimeline> repeating = simulate_repeating(program, costs, {}, 128);
  if (repeating) CHECK(equal(repeating->timeline, simulate_step_by_step(program, costs, {})));
  CHECK_NOTHROW(simulate(program, costs));
}

TEST_CASE("a message that stands in a queue twenty times is refused, not counted beyond all places", "[simulator]") {
  const Layout layout(2, 1, 32);
  const DepthMap depth(2, 1, DepthMap::even_cuts(2, 2, 2), Residual::standard);
  Program program = lower(make_schedule({.kind = ScheduleKind::gpipe}, layout), depth, Policy::standard);
  int changed = 0;
  for (CommStep& step : program.ranks[0].comm) {
    if (step.kind == CommKind::send && changed++ < 20) step.message = MessageId(31);
  }
  CHECK_THROWS_AS(simulate(program, unit_time(us(50)), {.order = ChannelOrder::fifo_per_lane}), InputError);
}

TEST_CASE("nothing is told again of a program that never repeats itself", "[simulator]") {
  const Layout layout(4, 1, 64);
  Schedule schedule = make_schedule({.kind = ScheduleKind::gpipe}, layout);
  for (std::vector<Action>& row : schedule.ranks) {
    // All forwards of a rank stay before its backwards; microbatches come in one order that has no rhythm.
    for (std::size_t half = 0; half < 2; ++half) {
      Dice same(7);
      for (std::size_t i = 63; i > 0; --i) {
        const auto other = static_cast<std::size_t>(same.roll(0, static_cast<int>(i)));
        std::swap(row[half * 64 + i], row[half * 64 + other]);
      }
    }
  }
  const DepthMap depth(8, 1, DepthMap::even_cuts(8, 8, 4), Residual::standard);
  const Program program = lower(schedule, depth, Policy::standard);
  const std::optional<RepeatedTimeline> repeating = simulate_repeating(program, unit_time(us(50)), {}, 128);
  REQUIRE(repeating.has_value());
  CHECK(repeating->num_repeated == 0);
}
