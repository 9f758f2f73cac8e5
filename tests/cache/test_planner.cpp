// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "cache/support/layouts.hpp"
#include "plumb/cache/planner.hpp"
#include "plumb/schedule/generators.hpp"
#include "support/catch.hpp"

using namespace plumb;
using plumb::test::block_policies;
using plumb::test::Dice;

namespace {

// Position of every start in the common order.
struct Positions {
  std::map<std::tuple<int, int, bool>, std::size_t> compute;       // (chunk, microbatch, backward)
  std::map<std::tuple<int, int, Direction>, std::size_t> message;  // (transfer, microbatch, direction)
};

Positions positions(const Schedule& schedule, const Plan& plan) {
  Positions found;
  for (std::size_t p = 0; p < plan.starts.size(); ++p) {
    const PlannedStart& start = plan.starts[p];
    const auto index = static_cast<std::size_t>(start.index);
    if (start.is_message) {
      const Message& m = plan.messages[index];
      REQUIRE(found.message.emplace(std::tuple{m.transfer.value, m.microbatch.value, m.direction}, p).second);
    } else {
      const Compute& c = schedule.ranks[start.rank.index()][index].first;
      REQUIRE(found.compute.emplace(std::tuple{c.chunk.value, c.microbatch.value, c.op != Op::forward}, p).second);
    }
  }
  return found;
}

}  // namespace

TEST_CASE("the common order is a linear extension of every dependency", "[cache]") {
  Dice dice(5);
  for (int round = 0; round < 120; ++round) {
    const auto placement = dice.roll(0, 1) == 0 ? Placement::loop : Placement::vee;
    const int pp = dice.roll(1, 4);
    // Only V = 1 is generated for vee: with one run of ranks both placements agree.
    const Layout layout(pp, placement == Placement::vee ? 1 : dice.roll(1, 3), pp * dice.roll(1, 3), placement);
    const Schedule schedule = interleaved(layout, default_group(layout));
    const DepthMap depth = test::random_depth(dice, layout.num_chunks(), 30);
    for (const Policy policy : block_policies) {
      const Routing routing = make_routing(layout, depth, policy);
      const PlanCosts costs{.value_unit = dice.roll(0, 3) * 100'000, .gradient_unit = dice.roll(0, 3) * 100'000};
      const Plan plan = plan_order(schedule, routing, costs);
      const Positions at = positions(schedule, plan);
      REQUIRE(plan.messages.size() == 2 * routing.transfers.size() * static_cast<std::size_t>(layout.microbatches()));
      for (std::size_t t = 0; t < routing.transfers.size(); ++t) {
        const Transfer& transfer = routing.transfers[t];
        for (int m = 0; m < layout.microbatches(); ++m) {
          const auto key = [&](TransferId id, Direction d) { return std::tuple{id.value, m, d}; };
          const std::size_t forward = at.message.at(key(TransferId(t), Direction::forward));
          const std::size_t backward = at.message.at(key(TransferId(t), Direction::backward));
          if (transfer.after_arrival.value >= 0) {
            REQUIRE(at.message.at(key(transfer.after_arrival, Direction::forward)) < forward);
          } else {
            REQUIRE(at.compute.at({transfer.after_chunk.value, m, false}) < forward);
          }
          REQUIRE(forward < at.compute.at({transfer.to_chunk.value, m, false}));
          REQUIRE(at.compute.at({transfer.to_chunk.value, m, true}) < backward);
          for (const HoldingId id : transfer.holdings) {
            const Holding& parent = routing.holdings[routing.holdings[id.index()].parent.index()];
            if (parent.is_root()) {
              REQUIRE(backward < at.compute.at({parent.bringer.value, m, true}));
            } else {
              REQUIRE(backward < at.message.at(key(parent.transfer, Direction::backward)));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("with free links the planned makespan is the schedule's own", "[cache]") {
  for (const int pp : {1, 2, 4}) {
    for (const int vp : {1, 2, 3}) {
      const Layout layout(pp, vp, 2 * pp);
      const DepthMap depth(2 * layout.num_chunks(), 2,
                           DepthMap::even_cuts(2 * layout.num_chunks(), layout.num_chunks(), layout.num_chunks()));
      const PlanCosts costs{
          .forward = 10, .backward_input = 12, .backward_weight = 8, .value_unit = 0, .gradient_unit = 0};
      const Plan plan =
          plan_order(interleaved(layout, default_group(layout)), make_routing(layout, depth, Policy::cached), costs);
      REQUIRE(plan.makespan == (layout.microbatches() * vp + pp - 1) * 30);
    }
  }
}
