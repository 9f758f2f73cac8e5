// SPDX-License-Identifier: Apache-2.0
//
// Every number and formula of formulas.hpp against the table that the generator makes.
#include <cmath>
#include <map>
#include <random>

#include "plumb/schedule/formulas.hpp"
#include "plumb/schedule/makespan.hpp"
#include "plumb/schedule/named.hpp"
#include "requests.hpp"
#include "support.hpp"

namespace plumb {
namespace {

using test::for_each_request;

std::int64_t forwards_before_first_backward(const std::vector<Action>& actions) {
  std::int64_t forwards = 0;
  for (const Action& action : actions) {
    if (action.first.op != Op::forward) break;
    ++forwards;
    if (action.second) break;
  }
  return forwards;
}

double bubble(const Schedule& schedule, const ChunkTimes& times, bool pairs_together = false) {
  const double work = times.forward + (schedule.forward_only ? 0 : times.backward_input + times.backward_weight);
  return time_schedule(schedule, times, {.together = pairs_together}).makespan -
         schedule.layout.microbatches() * schedule.layout.vp() * work;
}

TEST_CASE("warm-up and peak activations of every schedule are those of the formulas", "[schedule]") {
  std::size_t checked = 0;
  for (const bool forward_only : {false, true}) {
    for_each_request(
        {.max_pp = 8, .max_vp = 4, .forward_only = forward_only}, [&](const auto& request, const Layout& layout) {
          const Schedule schedule = make_schedule(request, layout);
          const ScheduleFormulas formulas = formulas_of(request, layout);
          const std::vector<int> peaks = peak_activations(schedule);
          REQUIRE(formulas.warmup.size() == schedule.ranks.size());
          REQUIRE(formulas.peak.size() == schedule.ranks.size());
          REQUIRE_FALSE(formulas.warmup_text.empty());
          REQUIRE_FALSE(formulas.peak_text.empty());
          REQUIRE_FALSE(formulas.bubble_text.empty());
          for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
            CAPTURE(schedule.name, layout.pp(), layout.vp(), layout.microbatches(), request.group.value_or(0), r);
            REQUIRE(formulas.warmup[r] == forwards_before_first_backward(schedule.ranks[r]));
            if (formulas.peak_is_exact) {
              REQUIRE(formulas.peak[r] == peaks[r]);
            } else {
              REQUIRE(formulas.peak[r] >= peaks[r]);
            }
            ++checked;
          }
        });
  }
  CHECK(checked > 30000);
}

TEST_CASE("wherever a bubble formula claims to be exact it is, for any times", "[schedule]") {
  std::mt19937 random(11);
  const auto draw = [&] { return static_cast<double>(std::uniform_int_distribution(1, 12)(random)); };
  std::map<ScheduleKind, std::size_t> exact;
  for_each_request({.max_pp = 8, .max_vp = 4}, [&](const auto& request, const Layout& layout) {
    const Schedule schedule = make_schedule(request, layout);
    for (const ChunkTimes times : {ChunkTimes{1, 1, 1}, ChunkTimes{2, 2, 1}, ChunkTimes{draw(), draw(), draw()},
                                   ChunkTimes{3, draw(), draw()}}) {
      for (const bool together : {false, true}) {
        const std::optional<double> formula = bubble_by_formula(request, layout, times, together);
        if (!formula) continue;
        CAPTURE(schedule.name, layout.pp(), layout.vp(), layout.microbatches(), request.group.value_or(0), together);
        CAPTURE(times.forward, times.backward_input, times.backward_weight);
        REQUIRE(bubble(schedule, times, together) == *formula);  // whole numbers: no rounding
        ++exact[request.kind];
      }
    }
  });
  for (const ScheduleKind kind : all_schedule_kinds()) {
    CAPTURE(to_string(kind));
    CHECK(exact[kind] > 50);
  }
}

TEST_CASE("a bubble formula is given for equal times, except for very few microbatches", "[schedule]") {
  for_each_request({.max_pp = 8, .max_vp = 3}, [&](const auto& request, const Layout& layout) {
    if (layout.microbatches() < layout.pp()) return;
    REQUIRE(bubble_by_formula(request, layout, {1, 1, 1}).has_value());
  });
}

TEST_CASE("the bubble of a forward-only schedule is that of its formula", "[schedule]") {
  std::size_t checked = 0;
  for_each_request({.max_pp = 8, .max_vp = 4, .forward_only = true}, [&](const auto& request, const Layout& layout) {
    const Schedule schedule = make_schedule(request, layout);
    for (const ChunkTimes times : {ChunkTimes{1, 1, 1}, ChunkTimes{3, 1, 2}}) {
      const std::optional<double> formula = bubble_by_formula(request, layout, times);
      if (!formula) continue;
      CAPTURE(schedule.name, layout.pp(), layout.vp(), layout.microbatches(), request.group.value_or(0));
      REQUIRE(bubble(schedule, times) == *formula);
      ++checked;
    }
  });
  CHECK(checked > 5000);
}

TEST_CASE("pairs that run together give DualPipeV its published bubble where F and I are equal", "[schedule]") {
  const ScheduleRequest request{.kind = ScheduleKind::dualpipe_v};
  for (int pp = 1; pp <= 8; ++pp) {
    for (int m = 2 * pp; m <= 3 * pp; ++m) {
      const Layout layout(pp, 2, m, Placement::vee);
      for (const ChunkTimes t : {ChunkTimes{1, 1, 1}, ChunkTimes{4, 4, 3}, ChunkTimes{4, 4, 1}}) {
        const double backward = t.backward_input + t.backward_weight;
        const double published = (pp - 1) * ((t.forward + backward) + backward - 3 * t.backward_weight);
        REQUIRE(bubble(make_schedule(request, layout), t, true) == published);
        REQUIRE(bubble_by_formula(request, layout, t, true) == published);
      }
    }
  }
  CHECK(formulas_of(request, Layout(4, 2, 8, Placement::vee), true).bubble_text !=
        formulas_of(request, Layout(4, 2, 8, Placement::vee)).bubble_text);
}

TEST_CASE("a formula is refused where its schedule is", "[schedule]") {
  CHECK_THROWS_AS(formulas_of({.kind = ScheduleKind::zb_v}, Layout(4, 2, 8)), InputError);
  CHECK_THROWS_AS(bubble_by_formula({.kind = ScheduleKind::gpipe}, Layout(4, 2, 8), {}), InputError);
}

}  // namespace
TEST_CASE("looped breadth-first has no bubble formula on vee placement", "[schedule]") {
  const ScheduleRequest request{.kind = ScheduleKind::looped_bfs};
  CHECK(bubble_by_formula(request, Layout(4, 2, 8), {}).has_value());
  CHECK_FALSE(bubble_by_formula(request, Layout(4, 2, 8, Placement::vee), {}).has_value());
  CHECK(formulas_of(request, Layout(4, 2, 8, Placement::vee)).bubble_rule == "the placement is loop");
}

}  // namespace plumb
