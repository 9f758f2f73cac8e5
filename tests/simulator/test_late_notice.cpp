// SPDX-License-Identifier: Apache-2.0
#include "cache/support/programs.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/simulator/compare.hpp"
#include "plumb/simulator/simulate.hpp"
#include "simulator/support/models.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

TEST_CASE("without a thread for communication a passing block waits for the computation it meets", "[simulator]") {
  const Layout layout(8, 1, 8);
  const DepthMap depth(16, 2, DepthMap::even_cuts(16, 16, 8));
  const Program program = lower(one_f_one_b(layout), depth, Policy::cached);
  const CostModel costs = unit_time(us(130));
  const Timeline at_once = simulate(program, costs);
  SimOptions late;
  late.communication_waits_for_compute = true;
  const Timeline noticed_late = simulate(program, costs, late);
  int num_moved = 0;
  for (std::size_t m = 0; m < program.messages.size(); ++m) {
    const SimTime ready = noticed_late.messages[m].send_ready;
    num_moved += ready != at_once.messages[m].send_ready ? 1 : 0;
    // Nothing is posted in the midst of a computation of its rank.
    for (const ComputeTimes& computes : noticed_late.ranks[program.sender(MessageId(m)).index()].compute)
      REQUIRE_FALSE((computes.start < ready && ready < computes.end));
  }
  CHECK(num_moved > 0);
  CHECK(noticed_late.step > at_once.step);
}

TEST_CASE("without a thread for communication forwarding on arrival is worth less on busy links", "[simulator]") {
  const Layout layout(8, 4, 32);
  const DepthMap depth(32, 1, DepthMap::even_cuts(32, 32, 32));
  const Schedule schedule = interleaved(layout, 8);
  const CostModel costs = unit_time(us(200));
  SimOptions late;
  late.communication_waits_for_compute = true;
  const auto overhead = [&](const SimOptions& options, Policy policy) {
    for (const PolicyRow& row : compare_policies(schedule, depth, costs, options)) {
      if (row.policy == policy) return row.overhead_over_standard;
    }
    return -1.0;
  };
  const double cached = overhead({}, Policy::cached);
  CHECK(cached < 0.03);
  CHECK(overhead(late, Policy::cached) > 2 * cached);
}
