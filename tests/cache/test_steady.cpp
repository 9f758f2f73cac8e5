// SPDX-License-Identifier: Apache-2.0
#include "cache/support/layouts.hpp"
#include "countdown.hpp"
#include "lower_rank.hpp"
#include "planner_run.hpp"
#include "plumb/cache/steady.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/schedule/named.hpp"
#include "support/catch.hpp"

using namespace plumb;
using plumb::test::Dice;

namespace {

constexpr Policy all_policies[] = {Policy::standard, Policy::naive, Policy::relay, Policy::cached, Policy::direct};

// A record that also counts how much of it was told as a repetition.
struct Counting : PlanRecord {
  using PlanRecord::PlanRecord;
  void repeat(std::size_t times, std::int64_t duration, int microbatches) {
    const std::size_t before = messages.size();
    PlanRecord::repeat(times, duration, microbatches);
    repeated += messages.size() - before;
  }
  std::size_t repeated = 0;
};

void require_equal(const PlanRecord& record, const Plan& plan, const Schedule& schedule, const Routing& routing) {
  REQUIRE(record.messages == plan.messages);
  std::vector<std::vector<PlanRecord::Start>> order(schedule.ranks.size());
  for (RankId rank; rank.index() < order.size(); rank = rank.next())
    record.for_each_start(rank, [&](const PlanRecord::Start& start) { order[rank.index()].push_back(start); });
  std::vector<std::size_t> at(schedule.ranks.size(), 0);
  std::vector<std::size_t> computes(schedule.ranks.size(), 0);
  for (const PlannedStart& start : plan.starts) {
    if (!start.is_message) {
      const std::size_t rank = start.rank.index();
      const PlanRecord::Start& told = order[rank].at(at[rank]++);
      const PlannedTimes& times = record.computes[rank].at(computes[rank]++);
      REQUIRE(told.message == PlanRecord::Start::compute);
      REQUIRE((told.at == start.start && times.start == start.start && times.end == start.end));
      continue;
    }
    const Message& message = plan.messages[static_cast<std::size_t>(start.index)];
    const Transfer& transfer = routing.transfers[message.transfer.index()];
    for (const RankId rank : {transfer.from, transfer.to}) {
      const PlanRecord::Start& told = order[rank.index()].at(at[rank.index()]++);
      REQUIRE((told.message == start.index && told.at == start.start && told.microbatch == message.microbatch));
    }
  }
  for (std::size_t rank = 0; rank < at.size(); ++rank)
    REQUIRE(at[rank] == order[rank].size());
}

}  // namespace

namespace {

struct Problem {
  Schedule schedule;
  DepthMap depth;
  Policy policy = Policy::standard;
  PlanCosts costs;
};

Problem random_problem(Dice& dice) {
  constexpr ScheduleKind kinds[] = {ScheduleKind::gpipe,      ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                                    ScheduleKind::looped_bfs, ScheduleKind::zb_h1,       ScheduleKind::zb_v,
                                    ScheduleKind::dualpipe_v, ScheduleKind::v_half};
  const ScheduleKind kind = kinds[dice.roll(0, 7)];
  const bool vee = placement_of(kind) == Placement::vee;
  const int vp = vee ? 2 : kind == ScheduleKind::one_f_one_b || kind == ScheduleKind::gpipe ? 1 : dice.roll(1, 3);
  const int pp = dice.roll(1, 8);
  const int extra = vp == 1 && kind != ScheduleKind::zb_h1 ? dice.roll(0, 1) : 0;
  const Layout layout(pp, vp, pp * dice.roll(8, 24) + extra, placement_of(kind));
  const Policy policy = all_policies[dice.roll(0, 4)];
  const Residual residual = policy == Policy::standard ? Residual::standard : Residual::attnres_block;
  PlanCosts costs{.value_unit = dice.roll(0, 3) * 100'000,
                  .gradient_unit = dice.roll(0, 3) * 100'000,
                  .latency = dice.roll(0, 2) * 70'000,
                  .duplex = dice.roll(0, 3) == 0 ? Duplex::half : Duplex::full};
  if (dice.roll(0, 2) == 0) {
    for (int chunk = 0; chunk < layout.num_chunks(); ++chunk)
      costs.chunks.push_back({dice.roll(1, 9) * 300'000, dice.roll(1, 9) * 200'000, dice.roll(0, 5) * 100'000});
  }
  return {make_schedule({.kind = kind}, layout),
          DepthMap(24, 4, DepthMap::even_cuts(24, 24, layout.num_chunks()), residual), policy, costs};
}

Program without_ranks(const Problem& problem, Routing routing, int post_ahead) {
  return {.layout = problem.schedule.layout,
          .depth = problem.depth,
          .routing = std::move(routing),
          .schedule_name = problem.schedule.name,
          .forward_only = false,
          .post_ahead = post_ahead,
          .messages = {},
          .ranks = {}};
}

template <class T, class Fields>
bool equal(const std::vector<T>& a, const std::vector<T>& b, Fields&& fields) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const T& x, const T& y) { return fields(x) == fields(y); });
}

void require_equal(const RankProgram& a, const RankProgram& b) {
  const auto range = [](Range r) { return std::pair{r.begin, r.end}; };
  REQUIRE(equal(a.compute, b.compute, [&](const ComputeStep& s) {
    return std::tuple{s.compute, s.overlaps_next, range(s.waits), range(s.operands), range(s.releases)};
  }));
  REQUIRE(equal(a.comm, b.comm, [&](const CommStep& s) {
    return std::tuple{s.kind,         s.first_touch,     s.lane,           s.peer, s.message.value, s.holding,
                      range(s.waits), range(s.segments), range(s.releases)};
  }));
  REQUIRE(a.order == b.order);
  REQUIRE(a.waits == b.waits);
  REQUIRE(a.operands == b.operands);
  REQUIRE(a.segments == b.segments);
  REQUIRE(equal(a.releases, b.releases, [&](const Release& r) { return std::tuple{bits_of(r.slot), range(r.waits)}; }));
  REQUIRE((a.num_value_slots == b.num_value_slots && a.num_gradient_slots == b.num_gradient_slots));
}

}  // namespace

TEST_CASE("a plan that repeats its steady part is the plan that goes through every step", "[cache]") {
  Dice dice(11);
  std::size_t repeated = 0;
  std::size_t told = 0;
  for (int round = 0; round < 120; ++round) {
    const Problem problem = random_problem(dice);
    CAPTURE(problem.schedule.name, problem.schedule.layout.pp(), problem.schedule.layout.microbatches());
    const Routing routing = make_routing(problem.schedule.layout, problem.depth, problem.policy);
    Counting record(problem.schedule, routing);
    const std::int64_t makespan = PlannerRun<Counting>(problem.schedule, routing, problem.costs, record).run();
    const Plan plan = plan_order(problem.schedule, routing, problem.costs);
    REQUIRE(makespan == plan.makespan);
    require_equal(record, plan, problem.schedule, routing);
    repeated += record.repeated;
    told += record.messages.size();
  }
  CHECK(2 * repeated > told);  // else the test says little
}

TEST_CASE("a rank's program that repeats its steady part is the one lowered step by step", "[cache]") {
  Dice dice(12);
  std::size_t steps = 0;
  std::size_t walked = 0;
  for (int round = 0; round < 120; ++round) {
    const Problem problem = random_problem(dice);
    const int post_ahead = dice.roll(0, 3);
    CAPTURE(problem.schedule.name, problem.schedule.layout.pp(), problem.schedule.layout.microbatches(), post_ahead);
    const Program program =
        without_ranks(problem, make_routing(problem.schedule.layout, problem.depth, problem.policy), post_ahead);
    PlanRecord plan(problem.schedule, program.routing);
    PlannerRun<PlanRecord>(problem.schedule, program.routing, problem.costs, plan).run();
    PlanRecord step_by_step = plan;
    for (RankId rank; rank.index() < plan.order.size(); rank = rank.next()) {
      step_by_step.order[rank.index()].clear();
      plan.for_each_start(rank, [&](const auto& start) { step_by_step.order[rank.index()].push_back(start); });
    }
    step_by_step.repetitions.clear();
    for (RankId rank; rank.value < problem.schedule.layout.pp(); rank = rank.next()) {
      const std::vector<Action>& row = problem.schedule.ranks[rank.index()];
      LowerMemory memory;
      LowerMemory other;
      const RankProgram repeated = lower_rank(program, row, plan, rank, problem.costs, memory);
      require_equal(repeated, lower_rank(program, row, step_by_step, rank, problem.costs, other));
      steps += repeated.order.size();
      walked += memory.steps_walked;
    }
  }
  CHECK(4 * walked < 3 * steps);  // else the test says little
}

TEST_CASE("steady stretches are where a row comes again with later microbatches", "[cache]") {
  const Layout layout(4, 2, 40, Placement::loop);
  const Schedule schedule = interleaved(layout, default_group(layout));
  const std::vector<Action>& row = schedule.ranks.front();
  const std::vector<SteadyStretch> stretches = steady_stretches(row);
  REQUIRE(!stretches.empty());
  const auto length = [](const SteadyStretch& stretch) { return stretch.end - stretch.begin; };
  for (const SteadyStretch& stretch : stretches) {
    REQUIRE(length(stretch) >= 4 * stretch.actions);
    REQUIRE(steady_until(row, stretch.begin + stretch.actions, stretch.actions, stretch.microbatches) == stretch.end);
  }
  const SteadyStretch longest = *std::max_element(stretches.begin(), stretches.end(),
                                                  [&](const auto& a, const auto& b) { return length(a) < length(b); });
  CHECK(longest.actions == 16);  // F and B of 4 microbatches through 2 virtual stages
  CHECK(longest.microbatches == 4);
  CHECK(length(longest) > row.size() / 2);
}

TEST_CASE("a row without repetition has no steady stretch, and the search for one ends", "[cache]") {
  std::vector<Action> row;
  Dice dice(3);
  for (int i = 0; i < 20'000; ++i)
    row.push_back({{Op::forward, ChunkId(dice.roll(0, 1)), Microbatch(dice.roll(0, 1 << 20))}, {}});
  CHECK(steady_stretches(row).empty());
  CHECK(steady_stretches({}).empty());
}

TEST_CASE("a countdown repeated is the countdown gone through", "[cache]") {
  // Each period takes one from the first column of two rows, and two from the second column of the row behind them.
  const auto period = [](Countdown& counts, std::size_t at) {
    counts.count_down(at, 0);
    counts.count_down(at + 1, 0);
    if (at == 0) return;
    counts.count_down(at - 1, 1);
    counts.count_down(at - 1, 1);
  };
  for (std::size_t times = 1; times < 6; ++times) {
    CAPTURE(times);
    Countdown walked({3, 2}, 12);
    Countdown jumped({3, 2}, 12);
    for (std::size_t at = 0; at < 4; ++at)
      period(jumped, at);
    jumped.mark();
    CHECK(jumped.repeats(1));
    period(jumped, 4);
    CHECK_FALSE(jumped.repeats(2));
    REQUIRE(jumped.repeats(1));
    jumped.repeat(times, 1);
    for (std::size_t at = 0; at < 5 + times; ++at)
      period(walked, at);
    for (std::size_t row = 0; row < 12; ++row) {
      CAPTURE(row);
      CHECK(walked(row, 0) == jumped(row, 0));
      CHECK(walked(row, 1) == jumped(row, 1));
    }
  }
}

TEST_CASE("a countdown repeated from the last row back is the countdown gone through", "[cache]") {
  const auto period = [](Countdown& counts, std::size_t at) {
    counts.count_down(at, 0);
    counts.count_down(at - 1, 0);
    if (at + 1 < 12) counts.count_down(at + 1, 1);
  };
  for (std::size_t times = 1; times < 6; ++times) {
    Countdown walked({3, 2}, 12);
    Countdown jumped({3, 2}, 12);
    for (std::size_t at = 11; at > 7; --at)
      period(jumped, at);
    jumped.mark();
    CHECK(jumped.repeats(-1));
    period(jumped, 7);
    CHECK_FALSE(jumped.repeats(-2));
    REQUIRE(jumped.repeats(-1));
    jumped.repeat(times, -1);
    for (std::size_t at = 11; at > 6 - times; --at)
      period(walked, at);
    for (std::size_t row = 0; row < 12; ++row) {
      CAPTURE(times, row);
      CHECK(walked(row, 0) == jumped(row, 0));
      CHECK(walked(row, 1) == jumped(row, 1));
    }
  }
}

TEST_CASE("a count that was only looked at must repeat as well", "[cache]") {
  Countdown counts({1}, 4);
  counts.count_down(0, 0);
  counts.mark();
  counts.count_down(2, 0);
  CHECK(counts.repeats(1));
  CHECK(counts(0, 0) == 0);
  CHECK_FALSE(counts.repeats(1));  // row 1 is not where row 0 was
}
