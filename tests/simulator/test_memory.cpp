// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cache/support/programs.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/simulator/memory.hpp"
#include "plumb/simulator/network.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/simulate.hpp"
#include "simulator/support/models.hpp"
#include "simulator/support/networks.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

MemoryPeak peak_of(const Program& program, const CostModel& costs, RankId rank) {
  return memory_peak(memory_curve(program, simulate(program, costs), rank), costs.bytes());
}

struct Totals {
  int peak = 0;
  int sum = 0;
};

// Resident blocks of the named layout: the fullest rank, and the peaks of all ranks together.
Totals resident_blocks(const Schedule& schedule, const DepthMap& depth, Policy policy) {
  const CostModel costs = unit_time(us(100));
  const Program program = lower(schedule, depth, policy, {.post_ahead = 1, .costs = plan_costs(costs)});
  const SimReport report = make_report(program, costs, simulate(program, costs));
  Totals totals;
  for (const RankReport& rank : report.ranks) {
    totals.peak = std::max(totals.peak, rank.memory.each.block_units);
    totals.sum += rank.memory.each.block_units;
  }
  return totals;
}

}  // namespace

TEST_CASE("the activations alive on a rank are those of the schedule's formula", "[simulator]") {
  Dice dice(21);
  for (int round = 0; round < 30; ++round) {
    const int pp = dice.roll(2, 6);
    const int vp = dice.roll(1, 3);
    const int microbatches = pp * dice.roll(1, 4);
    const Layout layout(pp, vp, microbatches);
    const Schedule schedule = vp == 1 ? one_f_one_b(layout) : interleaved(layout, pp);
    const DepthMap depth = random_depth(dice, layout.num_chunks(), 40);
    const CostModel costs = free_links();
    const Program program = lower(schedule, depth, Policy::cached);
    CAPTURE(describe(program));
    for (int rank = 0; rank < pp; ++rank) {
      const int expected = vp == 1 ? std::min(microbatches, pp - rank)
                                   : std::min(microbatches * vp, (vp - 1) * pp + 2 * (pp - 1 - rank) + 1);
      CHECK(peak_of(program, costs, RankId(rank)).each.activation_chunks == expected);
    }
  }
}

TEST_CASE("forward-only steps free activations at once, a split backward with W", "[simulator]") {
  const CostModel costs = free_links();
  CHECK(peak_of(small_program(Policy::cached, true), costs, RankId(0)).each.activation_chunks == 1);
  // P = 1: F I F I W W; both activations are alive until their W.
  const Layout layout(1, 1, 2);
  const auto action = [](Op op, int microbatch) {
    return Action{{op, ChunkId(0), Microbatch(microbatch)}, std::nullopt};
  };
  const Schedule schedule{
      "by hand",
      layout,
      {{action(Op::forward, 0), action(Op::backward_input, 0), action(Op::forward, 1), action(Op::backward_input, 1),
        action(Op::backward_weight, 0), action(Op::backward_weight, 1)}},
      false};
  const Program program = lower(schedule, DepthMap(4, 2, {4}), Policy::cached);
  const std::vector<MemoryPoint> curve = memory_curve(program, simulate(program, costs), RankId(0));
  CHECK(memory_peak(curve, costs.bytes()).each.activation_chunks == 2);
  CHECK(curve.back().at == us(6000));
}

TEST_CASE("a small step's curve is what one works out by hand", "[simulator]") {
  // Two ranks, one microbatch, three blocks of one sublayer; chunk 0 closes b_1 beside the embedding, the head reads
  // all.
  const Layout layout(2, 1, 1);
  const CostModel costs = unit_time(us(100));
  const Program program =
      lower(one_f_one_b(layout), DepthMap(3, 1, {1, 3}), Policy::cached, {.post_ahead = 0, .costs = plan_costs(costs)});
  const Timeline timeline = simulate(program, costs);
  // F0 0..1000, message of b_0 and b_1 1000..1200, F1 1200..2200, B1 2200..4200, message 4200..4400, B0 4400..6400.
  REQUIRE(timeline.step == us(6400));
  const std::vector<MemoryPoint> first = memory_curve(program, timeline, RankId(0));
  const auto at = [](const std::vector<MemoryPoint>& curve, SimTime time) {
    Resident resident;
    for (const MemoryPoint& point : curve) {
      if (point.at <= time) resident = point.resident;
    }
    return resident;
  };
  CHECK(at(first, us(0)) == Resident{2, 0, 0, 0, 1});
  CHECK(at(first, us(3000)) == Resident{2, 0, 0, 0, 1});
  CHECK(at(first, us(4300)) == Resident{2, 0, 0, 2, 1});  // both sums on their way
  CHECK(at(first, us(5000)) == Resident{2, 0, 2, 0, 1});  // added, completed by B0
  CHECK(at(first, us(6400)) == Resident{});
  const std::vector<MemoryPoint> second = memory_curve(program, timeline, RankId(1));
  CHECK(at(second, us(999)) == Resident{});
  CHECK(at(second, us(1000)) == Resident{2, 0, 0, 0, 0});
  CHECK(at(second, us(2000)) == Resident{4, 0, 0, 0, 1});
  CHECK(at(second, us(3000)) == Resident{4, 0, 4, 0, 1});
  CHECK(at(second, us(4300)) == Resident{0, 0, 2, 0, 0});
  CHECK(at(second, us(4400)) == Resident{});
  const MemoryPeak peak = memory_peak(second, costs.bytes());
  CHECK(peak.bytes == 4 * 2000 + 4 * 4000);
  CHECK(peak.at == us(2200));
  CHECK(peak.live == Resident{4, 0, 4, 0, 1});
}

TEST_CASE("what is resident fits the program's slots and fills them when the step goes as planned", "[simulator]") {
  Dice dice(22);
  for (int round = 0; round < 80; ++round) {
    const Program program = random_program(dice);
    CAPTURE(describe(program));
    const CostModel costs = random_model(dice, program.layout.num_chunks());
    const Timeline timeline = simulate(program, costs);
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      const std::vector<MemoryPoint> curve = memory_curve(program, timeline, RankId(r));
      REQUIRE(curve.front().at == SimTime(0));
      REQUIRE(curve.back().resident == Resident{});
      REQUIRE(std::is_sorted(curve.begin(), curve.end(),
                             [](const MemoryPoint& a, const MemoryPoint& b) { return a.at < b.at; }));
      const MemoryPeak peak = memory_peak(curve, costs.bytes());
      REQUIRE(peak.value_slots <= program.ranks[r].num_value_slots);
      REQUIRE(peak.gradient_slots <= program.ranks[r].num_gradient_slots);
      for (const MemoryPoint& point : curve) {
        for (const auto count : resident_counts)
          REQUIRE(point.resident.*count >= 0);
      }
    }
  }
  const CostModel costs = unit_time(us(100));
  const Program planned = lower(interleaved(Layout(4, 2, 16), 4), DepthMap(32, 6, DepthMap::even_cuts(32, 32, 8)),
                                Policy::cached, {.post_ahead = 1, .costs = plan_costs(costs)});
  for (int rank = 0; rank < 4; ++rank) {
    const MemoryPeak peak = peak_of(planned, costs, RankId(rank));
    CHECK(peak.value_slots == planned.ranks[static_cast<std::size_t>(rank)].num_value_slots);
    CHECK(peak.gradient_slots == planned.ranks[static_cast<std::size_t>(rank)].num_gradient_slots);
  }
}

TEST_CASE("resident blocks of K3 on 8 ranks: one copy per rank, or one per virtual stage under naive", "[simulator]") {
  const Schedule schedule = interleaved(Layout(8, 4, 32), 8);
  const DepthMap k3(186, 24, DepthMap::even_cuts(186, 93, 32));
  const Totals naive = resident_blocks(schedule, k3, Policy::naive);
  CHECK(naive.peak == 164);
  CHECK(naive.sum == 1163);
  const Totals relay = resident_blocks(schedule, k3, Policy::relay);
  CHECK(relay.peak == 68);
  CHECK(relay.sum == 509);
  for (const Policy policy : {Policy::direct, Policy::cached}) {
    const Totals forwarded = resident_blocks(schedule, k3, policy);
    CHECK(forwarded.peak == 72);
    CHECK(forwarded.sum == 555);
  }
}

TEST_CASE("posting receives early costs a few units, the accumulators of K3 stay near 57", "[simulator]") {
  const Schedule schedule = interleaved(Layout(8, 4, 32), 8);
  const DepthMap k3(186, 24, DepthMap::even_cuts(186, 93, 32));
  const CostModel costs = unit_time(us(100));
  int before = 0;
  for (const int post_ahead : {0, 1, 8}) {
    const Program program = lower(schedule, k3, Policy::cached, {.post_ahead = post_ahead, .costs = plan_costs(costs)});
    const MemoryPeak worst = worst_peak(make_report(program, costs, simulate(program, costs)));
    CHECK(worst.each.block_units >= before);
    CHECK(worst.each.block_units <= 77);
    CHECK(std::abs(worst.each.gradient_units - 57) <= 2);
    before = worst.each.block_units;
  }
}

TEST_CASE("what is resident fits the slots on every network, eager messages among it", "[simulator]") {
  Dice dice(79);
  for (int round = 0; round < 60; ++round) {
    const Program program = random_program(dice);
    CAPTURE(describe(program));
    const CostModel costs = random_model(dice, program.layout.num_chunks());
    NetworkModel network = random_network(dice, program.layout.pp());
    network.streams = CommStreams::unordered;  // on streams a program may be stuck
    network.protocol.compute_share_while_active = network.protocol.compute_share_while_waiting = 0;
    network.protocol.eager_limit_bytes = dice.roll(0, 2) * 1'000'000;
    const SimReport report = make_report(program, costs, simulate_network(program, costs, network), &network);
    REQUIRE(report.memory_within_slots);
    REQUIRE(report.traffic_equals_formula);
  }
}
