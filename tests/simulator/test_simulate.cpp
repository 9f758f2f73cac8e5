// SPDX-License-Identifier: Apache-2.0
#include "cache/support/programs.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/simulate.hpp"
#include "simulator/support/models.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

DepthMap standard_depth(int chunks) {
  return DepthMap(2 * chunks, 1, DepthMap::even_cuts(2 * chunks, chunks, chunks), Residual::standard);
}

Program standard_program(const Schedule& schedule, const CostModel& costs) {
  return lower(schedule, standard_depth(schedule.layout.num_chunks()), Policy::standard,
               {.post_ahead = 1, .costs = plan_costs(costs)});
}

// Makespan in units of a rank's full forward share of one microbatch, as the table states it; c in forwards of one
// chunk.
double makespan(const Schedule& schedule, int tenths) {
  const CostModel costs = latency_only(us(100) * tenths);
  const Timeline timeline = simulate(standard_program(schedule, costs), costs);
  return to_us(timeline.step) / 1000 / schedule.layout.vp();
}

void require_equal(const Timeline& a, const Timeline& b) {
  REQUIRE(a.step == b.step);
  for (std::size_t r = 0; r < a.ranks.size(); ++r) {
    REQUIRE(a.ranks[r].comm_done == b.ranks[r].comm_done);
    for (std::size_t i = 0; i < a.ranks[r].compute.size(); ++i) {
      REQUIRE(a.ranks[r].compute[i].start == b.ranks[r].compute[i].start);
      REQUIRE(a.ranks[r].compute[i].exposed == b.ranks[r].compute[i].exposed);
    }
  }
  for (std::size_t m = 0; m < a.messages.size(); ++m) {
    REQUIRE(a.messages[m].start == b.messages[m].start);
    REQUIRE(a.messages[m].arrived == b.messages[m].arrived);
  }
}

}  // namespace

TEST_CASE("without communication costs a step takes M V (F+B) + (P-1)(F+B) and every rank idles (P-1)(F+B)",
          "[simulator]") {
  Dice dice(1);
  for (int round = 0; round < 40; ++round) {
    const int pp = dice.roll(1, 8);
    const int vp = dice.roll(1, 4);
    const int groups = dice.roll(1, 4);
    const Layout layout(pp, vp, groups * pp);
    const Schedule schedule = vp == 1                ? one_f_one_b(layout)
                              : dice.roll(0, 1) == 0 ? interleaved(layout, pp)
                                                     : breadth_first(layout);
    const CostModel costs = free_links();
    const Program program = standard_program(schedule, costs);
    const SimReport report = make_report(program, costs, simulate(program, costs));
    CAPTURE(describe(program));
    const SimTime busy = layout.microbatches() * vp * us(3000);
    const SimTime idle = (pp - 1) * us(3000);
    CHECK(report.step == busy + idle);
    CHECK(report.bubble.total() <= idle);  // the means are rounded down
    CHECK(report.bubble.total() > idle - SimTime(4));
    CHECK(report.bubble.waiting == SimTime(0));
    CHECK(report.bubble_over_ideal == Approx((pp - 1.0) / (layout.microbatches() * vp)));
    CHECK(report.bubble_over_step == Approx(to_us(idle) / to_us(busy + idle)));
    for (const RankReport& rank : report.ranks) {
      CHECK(rank.busy == busy);
      CHECK(rank.bubble.total() == idle);
    }
  }
}

TEST_CASE("a latency alone lengthens 1F1B and interleaved steps as measured elsewhere", "[simulator]") {
  const Schedule plain = one_f_one_b(Layout(4, 1, 32));
  CHECK(makespan(plain, 0) == Approx(105));
  CHECK(makespan(plain, 2) == Approx(115.4));
  CHECK(makespan(plain, 5) == Approx(131));
  CHECK(makespan(plain, 10) == Approx(157));
  const Schedule groups_of_4 = interleaved(Layout(4, 2, 32), 4);
  CHECK(makespan(groups_of_4, 0) == Approx(100.5));
  CHECK(makespan(groups_of_4, 2) == Approx(101.9));
  CHECK(makespan(groups_of_4, 5) == Approx(104));
  CHECK(makespan(groups_of_4, 10) == Approx(107.5));
  const Schedule groups_of_8 = interleaved(Layout(4, 2, 32), 8);
  CHECK(makespan(groups_of_8, 0) == Approx(100.5));
  CHECK(makespan(groups_of_8, 2) == Approx(101.1));
  CHECK(makespan(groups_of_8, 5) == Approx(102));
  CHECK(makespan(groups_of_8, 10) == Approx(103.5));
  const Schedule gpipe = breadth_first(Layout(4, 1, 32));
  CHECK(makespan(gpipe, 2) == Approx(106.2));
  CHECK(makespan(gpipe, 10) == Approx(111));
}

TEST_CASE("a step that is simulated with the costs it was planned for takes exactly the planned time", "[simulator]") {
  Dice dice(2);
  for (int round = 0; round < 60; ++round) {
    const Schedule schedule = random_schedule(dice, {.pp = 8, .vp = 4, .sublayers = 60, .microbatches = 16});
    const DepthMap depth = random_depth(dice, schedule.layout.num_chunks(), 60);
    const CostModel costs(action_times(us(1000), us(900), us(1100)),
                          Link{us(dice.roll(0, 1) * 30), us(dice.roll(0, 4) * 50), us(dice.roll(0, 4) * 50)},
                          storage_bytes);
    for (const Policy policy : block_policies) {
      const Program program =
          lower(schedule, depth, policy, {.post_ahead = dice.roll(0, 3), .costs = plan_costs(costs)});
      CAPTURE(describe(program));
      const Plan plan = plan_order(schedule, program.routing, plan_costs(costs));
      for (const ChannelOrder order :
           {ChannelOrder::by_readiness, ChannelOrder::fifo_per_lane, ChannelOrder::fifo_merged}) {
        REQUIRE(simulate(program, costs, {order}).step == us(1000) / plan_costs(costs).forward * plan.makespan);
      }
    }
  }
}

TEST_CASE("a first chunk that takes no time starts the step like any other", "[simulator]") {
  const CostModel costs({action_times(us(0), us(100), us(0)), action_times(us(100), us(0), us(100))}, Link{},
                        storage_bytes);
  const Program program =
      lower(one_f_one_b(Layout(2, 1, 3)), DepthMap(4, 2, {2, 4}), Policy::cached, {.costs = plan_costs(costs)});
  CHECK(simulate(program, costs).step == us(700));
}

TEST_CASE("a step of uneven chunks takes about the planned time, and less than planned with their average",
          "[simulator]") {
  Dice dice(21);
  SimTime planned_steps{0};
  SimTime steps{0};
  SimTime steps_planned_evenly{0};
  for (int round = 0; round < 40; ++round) {
    const Schedule schedule = random_schedule(dice, {.pp = 6, .vp = 3, .sublayers = 40, .microbatches = 12});
    const int num_chunks = schedule.layout.num_chunks();
    if (num_chunks == 1) continue;
    const DepthMap depth = random_depth(dice, num_chunks, 40);
    std::vector<ActionTimes> times;
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      times.push_back(action_times(us(100 * dice.roll(1, 9)), us(100 * dice.roll(1, 9)), us(100 * dice.roll(0, 9))));
    }
    const CostModel costs(times, Link{us(30), us(dice.roll(0, 4) * 50), us(dice.roll(0, 4) * 50)}, storage_bytes);
    const PlanCosts uneven = plan_costs(costs);
    PlanCosts even = uneven;
    even.chunks.clear();
    for (const Policy policy : block_policies) {
      const Program program = lower(schedule, depth, policy, {.costs = uneven});
      CAPTURE(describe(program));
      const SimTime planned =
          times[0].forward / uneven.chunks[0].forward * plan_order(schedule, program.routing, uneven).makespan;
      const SimTime step = simulate(program, costs).step;
      REQUIRE(step >= planned);
      planned_steps += planned;
      steps += step;
      steps_planned_evenly += simulate(lower(schedule, depth, policy, {.costs = even}), costs).step;
    }
  }
  CHECK(to_us(steps) < 1.0005 * to_us(planned_steps));  // a message may wait for its slot
  CHECK(steps < steps_planned_evenly);
}

TEST_CASE("the same input gives the same timeline", "[simulator]") {
  Dice dice(3);
  for (int round = 0; round < 20; ++round) {
    const Program program = random_program(dice);
    const CostModel costs = random_model(dice, program.layout.num_chunks());
    require_equal(simulate(program, costs), simulate(program, costs));
  }
}

TEST_CASE("a hop with a latency alone costs exactly the latency, any number at once", "[simulator]") {
  Dice dice(4);
  for (int round = 0; round < 20; ++round) {
    const Program program = random_program(dice);
    const CostModel costs = latency_only(us(250));
    for (const MessageTimes& message : simulate(program, costs).messages) {
      REQUIRE(message.start == std::max(message.send_ready, message.posted));
      REQUIRE(message.sent == message.start);
      REQUIRE(message.arrived == message.start + us(250));
    }
  }
}

TEST_CASE("a bandwidth holds a message for its units' time and the latency comes on top", "[simulator]") {
  Dice dice(5);
  for (int round = 0; round < 20; ++round) {
    const Program program = random_program(dice);
    const CostModel costs(action_times(us(5), us(6), us(7)), Link{us(3), us(10), us(20)}, storage_bytes);
    const Timeline timeline = simulate(program, costs);
    for (std::size_t m = 0; m < timeline.messages.size(); ++m) {
      const MessageTimes& message = timeline.messages[m];
      const bool forward = program.messages[m].direction == Direction::forward;
      REQUIRE(message.units == program.units(MessageId(m)));
      REQUIRE(message.sent - message.start == message.units * (forward ? us(10) : us(20)));
      REQUIRE(message.arrived - message.sent == us(3));
    }
  }
}

TEST_CASE("a step whose costs are all zero takes no time", "[simulator]") {
  Dice dice(6);
  for (int round = 0; round < 10; ++round) {
    const Program program = random_program(dice);
    const CostModel costs(ActionTimes{}, Link{}, storage_bytes);
    CHECK(simulate(program, costs).step == SimTime(0));
  }
}

TEST_CASE("a model for another number of chunks and a step of years are refused", "[simulator]") {
  const Program program = small_program(Policy::cached);
  const ActionTimes times = action_times(us(1), us(1), us(1));
  CHECK_THROWS_AS(simulate(program, CostModel({times, times, times}, Link{}, storage_bytes)), InputError);
  // 2400 microbatches of 2000 s each on one rank: 55 days.
  const CostModel slow(action_times(max_duration, max_duration / 2, max_duration / 2), Link{}, storage_bytes);
  CHECK_THROWS_WITH(simulate(standard_program(one_f_one_b(Layout(1, 1, 2400)), slow), slow),
                    Catch::Matchers::Contains("53 days"));
  // One message of 20000 blocks, 1000 s each: more than any time can say.
  const DepthMap deep(20000, 1, DepthMap::even_cuts(20000, 20000, 2));
  const CostModel wide(action_times(us(1), us(1), us(1)), Link{SimTime(0), max_duration, max_duration}, storage_bytes);
  CHECK_THROWS_WITH(simulate(lower(one_f_one_b(Layout(2, 1, 2)), deep, Policy::naive), wide),
                    Catch::Matchers::Contains("53 days"));
}

TEST_CASE("a program whose messages do not fit together is refused", "[simulator]") {
  const Program whole = small_program(Policy::cached);
  const auto first_receive = [](Program& program) -> CommStep& {
    for (RankProgram& rank : program.ranks) {
      for (CommStep& step : rank.comm) {
        if (step.kind == CommKind::receive) return step;
      }
    }
    throw std::logic_error("no receive");
  };
  Program shorter = whole;
  --first_receive(shorter).segments.end;
  CHECK_THROWS_WITH(simulate(shorter, free_links()), Catch::Matchers::Contains("its other end"));
  Program missing = whole;
  first_receive(missing).kind = CommKind::zero;
  CHECK_THROWS_WITH(simulate(missing, free_links()), Catch::Matchers::Contains("is missing"));
}

TEST_CASE("a program that deadlocks is an error naming who waits for what", "[simulator]") {
  Program program = standard_program(interleaved(Layout(4, 2, 8), 4), free_links());
  SECTION("because two receives stand the wrong way round in a queue") {
    // Rank 1 receives the first two microbatches of rank 0 in the other order than rank 0 sends them.
    std::vector<std::size_t> receives;
    std::vector<CommStep>& steps = program.ranks[1].comm;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].kind == CommKind::receive && steps[i].peer == RankId(0)) receives.push_back(i);
    }
    std::swap(steps[receives[0]].message, steps[receives[1]].message);
    CHECK_NOTHROW(simulate(program, free_links()));  // no queue, no order
    for (const ChannelOrder order : {ChannelOrder::fifo_per_lane, ChannelOrder::fifo_merged}) {
      CHECK_THROWS_WITH(simulate(program, free_links(), {order}),
                        Catch::Matchers::Contains("rank 0 0SEND_F0 to rank 1 waits for 0SEND_F1, which is ahead"));
    }
  }
  SECTION("because a computation waits for what follows from it") {
    RankProgram& last = program.ranks[3];
    std::int32_t receive = 0;  // the last arrival on the last rank
    for (std::size_t i = 0; i < last.comm.size(); ++i) {
      if (last.comm[i].kind == CommKind::receive) receive = static_cast<std::int32_t>(i);
    }
    last.compute[0].waits.begin = static_cast<std::uint32_t>(last.waits.size());
    last.waits.push_back({Wait::On::comm, receive});
    last.compute[0].waits.end = static_cast<std::uint32_t>(last.waits.size());
    try {
      simulate(program, free_links());
      FAIL("it ran");
    } catch (const SimulationStuck& stuck) {
      CHECK_THAT(stuck.what(), Catch::Matchers::Contains("wait for each other"));
      bool found = false;
      for (const SimulationStuck::Step& step : stuck.waiting()) {
        found = found || (step.rank == RankId(3) && step.what == to_string(last.compute[0].compute) &&
                          step.waiting_for.find("RECV") != std::string::npos);
      }
      CHECK(found);
    }
  }
}
