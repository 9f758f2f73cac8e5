// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "plumb/cache/lower.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "simulator/support/models.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

TEST_CASE("a unit has the bytes of the storage type, its gradient those of the wire and of the slot", "[simulator]") {
  const UnitBytes bf16 = unit_bytes(4096, 7168, 2, GradientWire::fp32);
  CHECK(bf16.value == 58'720'256);
  CHECK(bf16.gradient_wire == 117'440'512);
  CHECK(bf16.gradient_slot == 117'440'512);
  const UnitBytes rounded = unit_bytes(4096, 7168, 2, GradientWire::storage);
  CHECK(rounded.gradient_wire == rounded.value);
  CHECK(rounded.gradient_slot == 2 * rounded.value);
  const UnitBytes fp32 = unit_bytes(3, 5, 4, GradientWire::storage);
  CHECK(fp32.value == 60);
  CHECK(fp32.gradient_wire == 60);
  CHECK(fp32.gradient_slot == 60);
  const UnitBytes fp64 = unit_bytes(3, 5, 8, GradientWire::fp32);
  CHECK(fp64.value == 120);
  CHECK(fp64.gradient_wire == 120);
  CHECK(fp64.gradient_slot == 120);
}

TEST_CASE("sizes that are no tensor are refused", "[simulator]") {
  CHECK_THROWS_AS(unit_bytes(0, 8, 2, GradientWire::fp32), InputError);
  CHECK_THROWS_AS(unit_bytes(8, -1, 2, GradientWire::fp32), InputError);
  CHECK_THROWS_AS(unit_bytes(8, 8, 3, GradientWire::fp32), InputError);
  CHECK_THROWS_AS(unit_bytes(std::int64_t{1} << 40, std::int64_t{1} << 40, 2, GradientWire::fp32), InputError);
  CHECK_THROWS_AS(parse_gradient_wire("bf16"), InputError);
  CHECK(parse_gradient_wire("fp32") == GradientWire::fp32);
  CHECK(parse_gradient_wire("storage") == GradientWire::storage);
}

TEST_CASE("a rate gives the time of a unit by its bytes, an infinite one none", "[simulator]") {
  const UnitBytes bytes = unit_bytes(4096, 7168, 2, GradientWire::fp32);
  const Link link = link_from_rate(us(7), 50, bytes);  // 50 GB/s: 20 ps per byte
  CHECK(link.latency == us(7));
  CHECK(link.value_unit == SimTime(58'720'256 * std::int64_t{20}));
  CHECK(link.gradient_unit == 2 * link.value_unit);
  const Link open = link_from_rate(us(7), std::numeric_limits<double>::infinity(), bytes);
  CHECK(open.value_unit == SimTime(0));
  CHECK(open.gradient_unit == SimTime(0));
  CHECK(link_from_rate(us(0), 1e9, {1, 1, 1}).value_unit == SimTime(1));
  CHECK_THROWS_AS(link_from_rate(us(0), 0, bytes), InputError);
  CHECK_THROWS_AS(link_from_rate(us(0), -3, bytes), InputError);
  CHECK_THROWS_AS(link_from_rate(us(0), std::nan(""), bytes), InputError);
}

TEST_CASE("with a unit time a gradient takes longer by its bytes", "[simulator]") {
  const Link fp32 = link_from_unit_time(us(0), us(50), unit_bytes(16, 16, 2, GradientWire::fp32));
  CHECK(fp32.value_unit == us(50));
  CHECK(fp32.gradient_unit == us(100));
  const Link storage = link_from_unit_time(us(0), us(50), unit_bytes(16, 16, 2, GradientWire::storage));
  CHECK(storage.gradient_unit == us(50));
}

TEST_CASE("microseconds become whole picoseconds and absurd ones are refused", "[simulator]") {
  CHECK(from_us(0, "x") == SimTime(0));
  CHECK(from_us(0.1, "x") == SimTime(100'000));
  CHECK(from_us(1234.5678, "x") == SimTime(1'234'567'800));
  CHECK(to_us(SimTime(1'234'567'800)) == Approx(1234.5678));
  CHECK_THROWS_AS(from_us(-1, "x"), InputError);
  CHECK_THROWS_AS(from_us(2e9, "x"), InputError);
  CHECK_THROWS_AS(from_us(std::nan(""), "x"), InputError);
  CHECK_THROWS_WITH(from_us(-1, "--hop-us"), Catch::Matchers::Contains("--hop-us is -1 us"));
}

TEST_CASE("a model answers per chunk, or the same for all", "[simulator]") {
  const ActionTimes first = action_times(us(1), us(2), us(3));
  CHECK(first.backward == us(5));
  const CostModel both({first, action_times(us(4), us(5), us(6))}, Link{}, storage_bytes);
  CHECK(both.time_of(Op::forward, ChunkId(1)) == us(4));
  CHECK(both.time_of({Op::backward, ChunkId(0), Microbatch(9)}) == us(5));
  CHECK(both.time_of(Op::backward_input, ChunkId(1)) == us(5));
  CHECK(both.time_of(Op::backward_weight, ChunkId(0)) == us(3));
  both.require_fits(2);
  CHECK_THROWS_AS(both.require_fits(3), InputError);
  const CostModel one(first, Link{}, storage_bytes);
  one.require_fits(77);
  CHECK(one.time_of(Op::forward, ChunkId(76)) == us(1));
  CHECK_THROWS_AS(CostModel(std::vector<ActionTimes>{}, Link{}, storage_bytes), InputError);
}

TEST_CASE("the planner gets the times of each chunk where they differ, a B of its own shared out", "[simulator]") {
  ActionTimes fused = action_times(us(3), us(1), us(3));
  fused.backward = us(8);
  const CostModel model({action_times(us(1), us(2), us(4)), fused}, Link{}, storage_bytes);
  const PlanCosts costs = plan_costs(model);
  REQUIRE(costs.chunks.size() == 2);
  const std::int64_t tick = costs.chunks[0].forward;
  CHECK(costs.chunks[0].backward_input == 2 * tick);
  CHECK(costs.chunks[0].backward_weight == 4 * tick);
  CHECK(costs.chunks[1].forward == 3 * tick);
  CHECK(costs.chunks[1].backward_input == 2 * tick);
  CHECK(costs.chunks[1].backward_weight == 6 * tick);
  CHECK(plan_costs(free_links()).chunks.empty());
  CHECK_THROWS_AS(lower(one_f_one_b(Layout(3, 1, 3)), DepthMap(6, 2, {2, 4, 6}), Policy::cached, {.costs = costs}),
                  InputError);
}

TEST_CASE("the planner gets the mean times and the link, in the smallest ticks that keep the ratios", "[simulator]") {
  const CostModel model({action_times(us(1), us(2), us(4)), action_times(us(3), us(4), us(6))},
                        Link{us(9), us(7), us(8)}, storage_bytes);
  const PlanCosts costs = plan_costs(model);
  CHECK(costs.forward == 2);
  CHECK(costs.backward_input == 3);
  CHECK(costs.backward_weight == 5);
  CHECK(costs.value_unit == 7);
  CHECK(costs.gradient_unit == 8);
  CHECK(costs.latency == 9);
  ActionTimes times = action_times(us(1), us(1), us(3));
  times.backward = us(8);
  const PlanCosts shared = plan_costs(CostModel(times, Link{}, storage_bytes));
  CHECK(shared.forward == 1);
  CHECK(shared.backward_input == 2);
  CHECK(shared.backward_weight == 6);
  CHECK(shared.value_unit == 0);
  times = {us(1), us(8), us(0), us(0)};
  CHECK(plan_costs(CostModel(times, Link{}, storage_bytes)).backward_input == 8);
}

TEST_CASE("the planner's ticks stay small whatever the costs", "[simulator]") {
  const PlanCosts costs = plan_costs(CostModel(action_times(max_duration, max_duration - SimTime(1), SimTime(1)),
                                               Link{SimTime(3), SimTime(0), SimTime(7)}, storage_bytes));
  CHECK(costs.forward <= std::int64_t{1} << 40);
  CHECK(costs.forward == Approx(static_cast<double>(costs.backward_input)));
  CHECK(costs.backward_weight == 1);
  CHECK(costs.value_unit == 0);
  CHECK(costs.gradient_unit == 1);
  const PlanCosts nothing = plan_costs(CostModel(ActionTimes{}, Link{}, storage_bytes));
  CHECK(nothing.forward == 0);
}

TEST_CASE("times below zero or above 1000 s are refused", "[simulator]") {
  CHECK_THROWS_WITH(CostModel(action_times(us(-1), us(1), us(1)), Link{}, storage_bytes),
                    Catch::Matchers::Contains("the time of F is -1 us"));
  CHECK_THROWS_AS(CostModel(action_times(us(1), us(1), us(1)), Link{us(2'000'000'000), us(0), us(0)}, storage_bytes),
                  InputError);
}
