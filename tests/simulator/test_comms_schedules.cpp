// SPDX-License-Identifier: Apache-2.0
// Schedules with communication from elsewhere, simulated as they stand.
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

constexpr ChannelOrder all_orders[] = {ChannelOrder::by_readiness, ChannelOrder::fifo_per_lane,
                                       ChannelOrder::fifo_merged};

}  // namespace

TEST_CASE("torch's lowered schedules take as long as their computations if messages are free", "[simulator]") {
  const CostModel free = latency_only(us(0));
  for (const CommsSchedule& schedule : torch_schedules()) {
    INFO(schedule.name);
    const SimTime expected = simulate(lowered(computations_of(schedule)), free).step;
    const Program program = comms_program(schedule);
    for (const ChannelOrder order : all_orders) {
      CHECK(simulate(program, free, {.order = order}).step == expected);
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

TEST_CASE("a deferred receive costs no time where sends wait for nobody", "[simulator]") {
  // The order of receives within a row decides deadlocks, not times: a receive is posted as soon as it can be.
  const CommsSchedule schedule = comms_schedule(lowered(one_f_one_b(Layout(4, 1, 8))));
  const CostModel costs = latency_only(us(200));
  CHECK(simulate(comms_program(with_deferred_receives(schedule)), costs).step ==
        simulate(comms_program(schedule), costs).step);
}
