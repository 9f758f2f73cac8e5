// SPDX-License-Identifier: Apache-2.0
#include "cache/support/layouts.hpp"
#include "plumb/cache/lower.hpp"
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
    const int kept = dice.roll(-1, 3);
    CAPTURE(round, program.schedule_name, pp, vp, layout.microbatches(), program.post_ahead, kept);
    const std::optional<ProgramCut> cut = find_cut(program, kept);
    if (!cut) continue;
    const std::optional<Timeline> timeline = simulate_shortened(program, *cut, costs, options);
    if (!timeline) continue;
    ++repeated;
    REQUIRE(equal(*timeline, simulate_step_by_step(program, costs, options)));
  }
  CHECK(4 * repeated > rounds);  // else the test says little
}

TEST_CASE("nothing is left out of a program that never repeats itself", "[simulator]") {
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
  CHECK_FALSE(find_cut(lower(schedule, depth, Policy::standard)).has_value());
}
