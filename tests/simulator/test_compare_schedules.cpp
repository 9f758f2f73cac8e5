// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "cache/support/layouts.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/compare_schedules.hpp"
#include "simulator/support/models.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

const ActionTimes average = action_times(us(1000), us(1000), us(1000));

ScheduleRow run(ScheduleKind kind, int pp, int vp, int microbatches, int asked_chunks, int sublayers = 48) {
  const Layout layout(pp, vp, microbatches, placement_of(kind));
  const DepthMap depth(sublayers, 4, DepthMap::even_cuts(sublayers, sublayers, layout.num_chunks()));
  const CostModel costs(times_by_depth(average, asked_chunks, depth), Link{}, storage_bytes);
  return simulate_schedule(make_schedule({.kind = kind}, layout), depth, Policy::cached, costs);
}

}  // namespace

TEST_CASE("a chunk takes its part of the whole in proportion to its sublayers", "[simulator]") {
  Dice dice(9);
  for (int round = 0; round < 50; ++round) {
    const int chunks = dice.roll(1, 12);
    const int asked = dice.roll(1, 12);
    const DepthMap depth = random_depth(dice, chunks, 40);
    SimTime forward{0};
    for (const ActionTimes& times : times_by_depth(average, asked, depth)) {
      forward += times.forward;
      REQUIRE(times.backward - times.backward_input - times.backward_weight <= SimTime(2));
    }
    REQUIRE(std::abs((forward - asked * average.forward).count()) <= chunks);
    if (depth.sublayers_of(ChunkId(0)).empty()) REQUIRE(times_by_depth(average, asked, depth)[0].forward.count() == 0);
  }
  CHECK_THROWS_AS(times_by_depth({max_duration, max_duration, max_duration, max_duration}, 64, DepthMap(4, 2, {4})),
                  InputError);
}

TEST_CASE("the same model takes each schedule's own closed step", "[simulator]") {
  // P = 4, M = 8; a chunk of V = 2 takes F = 1, B = 2 ms, so a chunk of V = 1 takes twice that.
  CHECK(run(ScheduleKind::one_f_one_b, 4, 1, 8, 8).report.step == us((8 + 3) * 6000));
  CHECK(run(ScheduleKind::gpipe, 4, 1, 8, 8).report.step == us((8 + 3) * 6000));
  CHECK(run(ScheduleKind::interleaved, 4, 2, 8, 8).report.step == us((16 + 3) * 3000));
  CHECK(run(ScheduleKind::zb_h1, 4, 2, 8, 8).report.step == us(16 * 3000 + 3 * 1000));
  CHECK(run(ScheduleKind::zb_v, 4, 2, 8, 8).report.step == us(16 * 3000 + 3 * 1000));
}

TEST_CASE("activations in shares compare across virtual stages", "[simulator]") {
  CHECK(run(ScheduleKind::one_f_one_b, 4, 1, 8, 8).peak_activation_shares == Approx(4));
  CHECK(run(ScheduleKind::zb_v, 4, 2, 8, 8).peak_activation_shares == Approx(4));  // 8 chunks of half the size
  CHECK(run(ScheduleKind::interleaved, 4, 2, 8, 8).peak_activation_shares == Approx(5.5));
  CHECK(run(ScheduleKind::gpipe, 4, 1, 8, 8).peak_activation_shares == Approx(8));
}

TEST_CASE("schedules run on the virtual stages they take", "[simulator]") {
  for (const int vp : {1, 2, 5}) {
    CHECK(virtual_stages_of(ScheduleKind::one_f_one_b, vp) == 1);
    CHECK(virtual_stages_of(ScheduleKind::gpipe, vp) == 1);
    CHECK(virtual_stages_of(ScheduleKind::interleaved, vp) == vp);
    CHECK(virtual_stages_of(ScheduleKind::zb_h1, vp) == vp);
    CHECK(virtual_stages_of(ScheduleKind::dualpipe_v, vp) == 2);
  }
}

TEST_CASE("the JSON of a comparison keeps refused schedules with their reason", "[simulator]") {
  const std::vector<ScheduleRow> rows{run(ScheduleKind::zb_v, 2, 2, 4, 4),
                                      {"1f1b", 1, Placement::loop, "no \"room\"", {}, 0}};
  const nlohmann::json json = nlohmann::json::parse(to_json(rows));
  REQUIRE(json.size() == 2);
  CHECK(json[0].at("refused").is_null());
  CHECK(json[0].at("step_us") == Approx(to_us(rows[0].report.step)));
  CHECK(json[0].at("placement") == "vee");
  CHECK(json[0].at("traffic_equals_formula") == true);
  CHECK(json[1].at("refused") == "no \"room\"");
  CHECK_FALSE(json[1].contains("step_us"));
}
