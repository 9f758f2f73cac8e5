// SPDX-License-Identifier: Apache-2.0
// Schedules with communication from elsewhere, simulated as they stand.
#include <algorithm>

#include "cache/support/comms.hpp"
#include "plumb/cache/comms_program.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/simulate.hpp"
#include "simulator/support/models.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

Program lowered(const Schedule& schedule) {
  const int chunks = schedule.layout.num_chunks();
  return lower(schedule, DepthMap(chunks, chunks, DepthMap::even_cuts(chunks, chunks, chunks), Residual::standard),
               Policy::standard);
}

bool has_pairs(const CommsSchedule& schedule) {
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [](const auto& row) {
    return std::any_of(row.begin(), row.end(), [](const CommsItem& item) {
      const Action* action = std::get_if<Action>(&item);
      return action != nullptr && action->second.has_value();
    });
  });
}

constexpr ChannelOrder all_orders[] = {ChannelOrder::by_readiness, ChannelOrder::fifo_per_lane,
                                       ChannelOrder::fifo_merged};

}  // namespace

TEST_CASE("torch's lowered schedules take as long as their computations if messages are free", "[simulator]") {
  // But for overlapped pairs: a file sends what the first half made behind the whole pair.
  const CostModel free = latency_only(us(0));
  for (const CommsSchedule& schedule : torch_schedules()) {
    INFO(schedule.name);
    const SimTime expected = simulate(lowered(computations_of(schedule)), free).step;
    const Program program = comms_program(schedule);
    for (const ChannelOrder order : all_orders) {
      const SimTime step = simulate(program, free, {.order = order}).step;
      if (has_pairs(schedule)) {
        CHECK(step >= expected);
      } else {
        CHECK(step == expected);
      }
    }
  }
}

TEST_CASE("torch's lowered schedules run on links of finite rate and move what the formula says", "[simulator]") {
  for (const CommsSchedule& schedule : torch_schedules()) {
    INFO(schedule.name);
    const Program program = comms_program(schedule);
    const CostModel slow = latency_only(us(300));
    const Timeline timeline = simulate(program, slow, {.order = ChannelOrder::fifo_merged});
    CHECK(timeline.step > simulate(program, latency_only(us(0))).step);
    const SimReport report = make_report(program, slow, timeline);
    CHECK(report.traffic_equals_formula);
    CHECK(report.memory_within_slots);
  }
}

TEST_CASE("a receive that is posted only before its consumer costs the time of its message", "[simulator]") {
  // A row is run in order, and a message starts once both ends are posted.
  const CommsSchedule schedule = comms_schedule(lowered(one_f_one_b(Layout(4, 1, 8))));
  const auto step_of = [](const CommsSchedule& one, int latency_us) {
    return simulate(comms_program(one), latency_only(us(latency_us))).step;
  };
  CHECK(step_of(with_deferred_receives(schedule), 200) > step_of(schedule, 200));
  CHECK(step_of(with_deferred_receives(schedule), 0) == step_of(schedule, 0));
}
