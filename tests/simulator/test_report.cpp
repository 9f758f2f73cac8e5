// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <set>

#include <nlohmann/json.hpp>

#include "cache/support/programs.hpp"
#include "plumb/cache/volume.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/simulator/compare.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/simulate.hpp"
#include "simulator/support/models.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

SimReport report_of(const Program& program, const CostModel& costs) {
  return make_report(program, costs, simulate(program, costs));
}

std::set<std::string> keys(const nlohmann::json& object) {
  std::set<std::string> names;
  for (const auto& item : object.items())
    names.insert(item.key());
  return names;
}

}  // namespace

TEST_CASE("the traffic of simulated messages equals the closed formula for any layout and policy", "[simulator]") {
  Dice dice(31);
  for (int round = 0; round < 200; ++round) {
    const Program program = random_program(dice);
    CAPTURE(describe(program));
    const CostModel costs(action_times(us(5), us(5), us(5)), Link{us(1), us(2), us(4)},
                          unit_bytes(7, 3, 2, GradientWire::fp32));
    const SimReport report = report_of(program, costs);
    REQUIRE(report.traffic_equals_formula);
    REQUIRE(report.memory_within_slots);
    const std::int64_t units = expected_units(program.layout, program.depth, program.routing.policy);
    REQUIRE(report.forward_units_per_microbatch == static_cast<double>(units));
    REQUIRE(report.backward_units_per_microbatch == (program.forward_only ? 0.0 : static_cast<double>(units)));
    const std::int64_t both_ways = 42 + (program.forward_only ? 0 : 84);
    REQUIRE(report.bytes_per_step == units * program.layout.microbatches() * both_ways);
    double forward = 0;
    std::int64_t bytes = 0;
    for (const HopReport& hop : report.hops) {
      forward += hop.forward_units;
      bytes += hop.bytes_per_step;
      REQUIRE(hop.from_rank == program.layout.rank_of(hop.from_chunk));
      REQUIRE(hop.to_rank == program.layout.rank_of(hop.to_chunk));
      REQUIRE(hop.queued >= SimTime(0));
    }
    REQUIRE(forward == report.forward_units_per_microbatch);
    REQUIRE(bytes == report.bytes_per_step);
  }
}

TEST_CASE("a block dropped from one message breaks the equality with the formula", "[simulator]") {
  for (const Policy policy : block_policies) {
    Program program = small_program(policy);
    MessageId thinned{-1};
    for (RankProgram& rank : program.ranks) {
      for (CommStep& step : rank.comm) {
        const bool is_message = step.kind == CommKind::send || step.kind == CommKind::receive;
        if (!is_message || step.segments.size() < 2) continue;
        if (thinned.value < 0) thinned = step.message;
        if (step.message == thinned) --step.segments.end;
      }
    }
    REQUIRE(thinned.value >= 0);
    CHECK(report_of(small_program(policy), free_links()).traffic_equals_formula);
    CHECK_FALSE(report_of(program, free_links()).traffic_equals_formula);
  }
}

TEST_CASE("a rank's busy time and the parts of its bubble add up to the step", "[simulator]") {
  Dice dice(32);
  for (int round = 0; round < 100; ++round) {
    const Program program = random_program(dice);
    CAPTURE(describe(program));
    const SimReport report = report_of(program, random_model(dice, program.layout.num_chunks()));
    for (const RankReport& rank : report.ranks) {
      REQUIRE(rank.busy + rank.bubble.total() == report.step);
      for (const SimTime part : {rank.bubble.warmup, rank.bubble.steady, rank.bubble.cooldown, rank.bubble.waiting}) {
        REQUIRE(part >= SimTime(0));
      }
    }
  }
}

TEST_CASE("1F1B idles before its first backward and after its last forward", "[simulator]") {
  // Rank r waits r F before its first forward; until its first backward it waits for the pipeline below to come back.
  const int pp = 4;
  const Layout layout(pp, 1, 8);
  const DepthMap depth(8, 1, {2, 4, 6, 8}, Residual::standard);
  const SimReport report = report_of(lower(one_f_one_b(layout), depth, Policy::standard), free_links());
  for (const RankReport& rank : report.ranks) {
    const int r = rank.rank.value;
    // Warm-up: r F at the start and, while the first microbatch goes on to the last rank and comes back, (P-1-r)(F+B)
    // less the P-1-r forwards done meanwhile. Cool-down: a B less per rank of depth, and what is left at the end.
    const SimTime warmup = r * us(1000) + (pp - 1 - r) * us(2000);
    CHECK(rank.bubble.warmup == warmup);
    CHECK(rank.bubble.total() == (pp - 1) * us(3000));
    CHECK(rank.bubble.steady + rank.bubble.cooldown == (pp - 1) * us(3000) - warmup);
    CHECK(rank.bubble.waiting == SimTime(0));
  }
  CHECK(report.ranks.back().bubble.steady == SimTime(0));
}

TEST_CASE("time that a rank waits for a message already on its way is exposed communication", "[simulator]") {
  // P = 2, M = 1: F0, latency, F1, B1, latency, B0. Each rank waits one latency for what the other has finished.
  const Layout layout(2, 1, 1);
  const DepthMap depth(2, 1, {1, 2}, Residual::standard);
  const SimReport report = report_of(lower(one_f_one_b(layout), depth, Policy::standard), latency_only(us(40)));
  CHECK(report.step == us(6080));
  CHECK(report.ranks[0].bubble.waiting == us(40));
  CHECK(report.ranks[0].bubble.warmup == us(3040));  // F1 and B1 were computed meanwhile, after the first latency
  CHECK(report.ranks[1].bubble.waiting == us(40));
  CHECK(report.ranks[1].bubble.warmup == us(1000));
  CHECK(report.ranks[1].bubble.cooldown == us(2040));
  CHECK(report.bubble.waiting == us(40));
}

TEST_CASE("the JSON of a report has the promised keys with its numbers", "[simulator]") {
  const Program program = small_program(Policy::cached);
  const CostModel costs = unit_time(us(50));
  const SimReport report = report_of(program, costs);
  const nlohmann::json json = nlohmann::json::parse(to_json(report));
  CHECK(keys(json) == std::set<std::string>{"step_us", "bubble_us", "bubble_over_step", "bubble_over_ideal", "ranks",
                                            "hops", "traffic", "checks"});
  CHECK(keys(json["bubble_us"]) == std::set<std::string>{"warmup", "steady", "cooldown", "waiting"});
  CHECK(keys(json["traffic"]) ==
        std::set<std::string>{"forward_units_per_microbatch", "backward_units_per_microbatch", "bytes_per_step"});
  CHECK(json["step_us"] == to_us(report.step));
  CHECK(json["traffic"]["forward_units_per_microbatch"].is_number_integer());
  CHECK(json["traffic"]["bytes_per_step"] == report.bytes_per_step);
  CHECK(json["checks"]["traffic_equals_formula"] == true);
  REQUIRE(json["ranks"].size() == 4);
  for (const auto& rank : json["ranks"]) {
    for (const char* key : {"rank", "busy_us", "idle_us", "exposed_comm_us", "peak_activation_chunks",
                            "peak_resident_units", "peak_bytes"}) {
      CHECK(rank.contains(key));
    }
    CHECK(rank["busy_us"].get<double>() + rank["idle_us"].get<double>() == Approx(to_us(report.step)));
  }
  CHECK(json["ranks"][2]["peak_resident_units"] == report.ranks[2].memory.each.block_units);
  std::int64_t units = 0;
  for (const auto& hop : json["hops"])
    units += hop["units"].get<std::int64_t>();
  CHECK(units == json["traffic"]["forward_units_per_microbatch"]);
}

TEST_CASE("policies are compared over the standard residual of the same cuts and schedule", "[simulator]") {
  const Schedule schedule = interleaved(Layout(4, 2, 8), 4);
  const DepthMap depth(32, 6, DepthMap::even_cuts(32, 32, 8));
  const CostModel costs = unit_time(us(50));
  const std::vector<PolicyRow> rows = compare_policies(schedule, depth, costs);
  REQUIRE(rows.size() == 5);
  CHECK(rows.front().policy == Policy::standard);
  CHECK(rows.front().overhead_over_standard == 0);
  CHECK(rows.front().report.forward_units_per_microbatch == 7);
  const DepthMap plain(32, 1, DepthMap::even_cuts(32, 32, 8), Residual::standard);
  const Program baseline = lower(schedule, plain, Policy::standard, {.post_ahead = 1, .costs = plan_costs(costs)});
  CHECK(simulate(baseline, costs).step == rows.front().report.step);
  for (const PolicyRow& row : rows) {
    CHECK(row.overhead_over_standard ==
          Approx(to_us(row.report.step) / to_us(rows.front().report.step) - 1).margin(1e-12));
    CHECK(row.report.traffic_equals_formula);
  }
  const nlohmann::json json = nlohmann::json::parse(to_json(rows));
  CHECK(json.size() == 5);
  CHECK(json[4]["cache"] == "cached");
  CHECK(json[4]["step_us"] == to_us(rows[4].report.step));
  CHECK_THROWS(compare_policies(schedule, plain, costs));
}

TEST_CASE("shares of the step are the same when all times are a million times longer", "[simulator]") {
  const Layout layout(16, 1, 1000);
  const DepthMap depth(16, 16, DepthMap::even_cuts(16, 16, 16), Residual::standard);
  const Program program = lower(one_f_one_b(layout), depth, Policy::standard);
  const auto shares = [&](std::int64_t scale) {
    const SimTime unit(scale * 1'000'000);
    const SimReport report = report_of(program, CostModel(action_times(unit, unit, SimTime(0)),
                                                          Link{1000 * unit, SimTime(0), SimTime(0)}, storage_bytes));
    const double step = to_us(report.step);
    return std::array{report.bubble_over_step, report.bubble_over_ideal, to_us(report.bubble.warmup) / step,
                      to_us(report.bubble.steady) / step, to_us(report.bubble.waiting) / step};
  };
  const auto small = shares(1);
  const auto large = shares(1'000'000);
  for (std::size_t i = 0; i < small.size(); ++i)
    CHECK(large[i] == Approx(small[i]).margin(1e-9));
}
