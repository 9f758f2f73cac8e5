// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "plumb/schedule/check.hpp"
#include "plumb/schedule/generators.hpp"
#include "support.hpp"

namespace plumb {
namespace {

using Catch::Matchers::Contains;
using test::input_error_of;
using test::makespan;
using test::peak_activations;

constexpr double forward = 1;
constexpr double backward = 2;

bool legal(int pp, int microbatches, int group) {
  if (microbatches < pp) return group == microbatches;
  return group >= pp && group <= microbatches && (microbatches % group == 0 || microbatches % group >= pp);
}

void require_runs(const Schedule& schedule) {
  const ScheduleCheck check = check_schedule(schedule);
  REQUIRE(check.faults.empty());
  REQUIRE(check.cycle.empty());
}

TEST_CASE("1F1B is complete and runs with the bubble and memory of its formulas", "[schedule]") {
  for (int pp = 1; pp <= 8; ++pp) {
    for (int m = 1; m <= 20; ++m) {
      CAPTURE(pp, m);
      const Schedule schedule = one_f_one_b(Layout(pp, 1, m));
      require_runs(schedule);
      REQUIRE(makespan(schedule, {forward, backward}) == Approx((m + pp - 1) * (forward + backward)));
      for (int r = 0; r < pp; ++r)
        REQUIRE(peak_activations(schedule, RankId(r)) == std::min(m, pp - r));
    }
  }
}

TEST_CASE("interleaved 1F1B is complete and runs with the bubble and memory of its formulas", "[schedule]") {
  int checked = 0;
  for (int pp = 1; pp <= 8; ++pp) {
    for (int vp = 2; vp <= 4; ++vp) {
      for (int m = 1; m <= 20; ++m) {
        for (int group = 1; group <= m; ++group) {
          if (!legal(pp, m, group)) continue;
          CAPTURE(pp, vp, m, group);
          const Schedule schedule = interleaved(Layout(pp, vp, m), group);
          require_runs(schedule);
          if (m >= pp) {
            REQUIRE(makespan(schedule, {forward, backward}) == Approx((m * vp + pp - 1) * (forward + backward)));
          }
          for (int r = 0; r < pp; ++r) {
            const int peak = std::min(m * vp, (vp - 1) * group + 2 * (pp - 1 - r) + 1);
            REQUIRE(peak_activations(schedule, RankId(r)) == peak);
          }
          ++checked;
        }
      }
    }
  }
  REQUIRE(checked > 1000);
}

TEST_CASE("fewer microbatches than ranks run as one group with the warm-up clamped", "[schedule]") {
  for (int pp = 2; pp <= 12; ++pp) {
    for (int vp = 1; vp <= 5; ++vp) {
      for (int m = 1; m < pp; ++m) {
        CAPTURE(pp, vp, m);
        const Layout layout(pp, vp, m);
        REQUIRE(default_group(layout) == m);
        const Schedule schedule = interleaved(layout, default_group(layout));
        require_runs(schedule);
        REQUIRE(makespan(schedule).has_value());
      }
    }
  }
}

TEST_CASE("the interleaved order is the published example", "[schedule]") {
  const Schedule schedule = interleaved(Layout(2, 2, 5), 3);
  const char* rows[] = {"0F0 0F1 0F2 2F0 2F1 2F2 2B0 0F3 2B1 0F4 2B2 2F3 0B0 2F4 0B1 0B2 2B3 2B4 0B3 0B4",
                        "1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1F3 1B0 1F4 1B1 3F3 1B2 3F4 3B3 3B4 1B3 1B4"};
  for (std::size_t r = 0; r < 2; ++r) {
    std::string row;
    for (const Action& action : schedule.ranks[r])
      row += (row.empty() ? "" : " ") + to_string(action);
    CHECK(row == rows[r]);
  }
}

TEST_CASE("one virtual stage makes the interleaved order plain 1F1B with any group", "[schedule]") {
  for (int pp = 1; pp <= 6; ++pp) {
    for (int m = 1; m <= 13; ++m) {
      for (int group = 1; group <= 15; ++group) {
        REQUIRE(interleaved(Layout(pp, 1, m), group).ranks == one_f_one_b(Layout(pp, 1, m)).ranks);
      }
    }
  }
}

TEST_CASE("exactly the groups of the rule are accepted", "[schedule]") {
  for (int pp = 1; pp <= 6; ++pp) {
    for (int m = 1; m <= 16; ++m) {
      for (int group = -2; group <= 20; ++group) {
        CAPTURE(pp, m, group);
        if (legal(pp, m, group)) {
          REQUIRE_NOTHROW(interleaved(Layout(pp, 2, m), group));
        } else {
          REQUIRE_THROWS_AS(interleaved(Layout(pp, 2, m), group), InputError);
        }
      }
    }
  }
}

TEST_CASE("a group that is not legal is refused with the rule and the nearest legal values", "[schedule]") {
  const auto refusal = [](int pp, int m, int group) {
    return input_error_of([&] { interleaved(Layout(pp, 2, m), group); });
  };
  CHECK_THAT(refusal(4, 9, 4), Contains("P <= group <= M") && Contains("M mod group") &&
                                   Contains("for M=9 the nearest group is 5;") && Contains("the nearest M is 8 or 12"));
  CHECK_THAT(refusal(4, 9, 6), Contains("nearest group is 5 or 9;") && Contains("the nearest M is 6 or 10"));
  CHECK_THAT(refusal(4, 10, 8), Contains("nearest group is 6 or 10;") && Contains("the nearest M is 8 or 12"));
  CHECK_THAT(refusal(4, 13, 10), Contains("nearest group is 9 or 13;") && Contains("the nearest M is 10 or 14"));
  CHECK_THAT(refusal(4, 8, 2), Contains("nearest group is 4;") && Contains("for group 2 the nearest M is 2"));
  CHECK_THAT(refusal(4, 3, 4), Contains("with M < P the only group is M") &&
                                   Contains("for M=3 the nearest group is 3;") &&
                                   Contains("for group 4 the nearest M is 4"));
  CHECK_THAT(refusal(4, 8, 9), Contains("nearest group is 8;") && Contains("for group 9 the nearest M is 9"));
  for (const int bad : {0, -1, -std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
    CHECK_THAT(refusal(4, 8, bad), Contains("for M=8 the nearest group is 4"));
  }
  CHECK_THAT(refusal(4, 8, std::numeric_limits<int>::max()), Contains("the nearest group is 8"));
  CHECK_THROWS_AS(interleaved(Layout(2, 1, 4), 0), InputError);
}

TEST_CASE("1F1B refuses more than one virtual stage", "[schedule]") {
  CHECK_THAT(input_error_of([] { one_f_one_b(Layout(4, 2, 8)); }), Contains("V is 2") && Contains("must be 1"));
}

TEST_CASE("the interleaved order is refused on placement vee because it would wait for itself", "[schedule]") {
  CHECK_THAT(input_error_of([] { interleaved(Layout(4, 2, 8, Placement::vee), 4); }), Contains("placement loop"));
  CHECK_NOTHROW(interleaved(Layout(1, 2, 8, Placement::vee), 4));
  CHECK_NOTHROW(interleaved(Layout(4, 1, 8, Placement::vee), 4));

  // What it would be: the same turns, on the chunks that vee gives each rank.
  const Layout vee(4, 2, 8, Placement::vee);
  Schedule schedule = interleaved(Layout(4, 2, 8), 4);
  for (std::size_t r = 0; r < 4; ++r) {
    for (Action& action : schedule.ranks[r]) {
      action.first.chunk = vee.chunk_of(RankId(r), schedule.layout.virtual_stage_of(action.first.chunk));
    }
  }
  schedule.layout = vee;
  CHECK_FALSE(makespan(schedule).has_value());
  CHECK_FALSE(check_schedule(schedule).cycle.empty());
}

TEST_CASE("the breadth-first order runs on either placement", "[schedule]") {
  for (const Placement placement : {Placement::loop, Placement::vee}) {
    for (int pp = 1; pp <= 6; ++pp) {
      for (int vp = 1; vp <= 4; ++vp) {
        for (int m = 1; m <= 9; ++m) {
          CAPTURE(pp, vp, m, to_string(placement));
          const Schedule schedule = breadth_first(Layout(pp, vp, m, placement));
          require_runs(schedule);
          for (int r = 0; r < pp; ++r)
            REQUIRE(peak_activations(schedule, RankId(r)) == m * vp);
          if (placement == Placement::loop && m >= pp) {
            REQUIRE(makespan(schedule, {forward, backward}) == Approx((m * vp + pp - 1) * (forward + backward)));
          }
        }
      }
    }
  }
}

TEST_CASE("a forward-only schedule is the forwards of the full one in their order", "[schedule]") {
  const auto require_forwards = [](const Schedule& full, const Schedule& evaluation) {
    REQUIRE(evaluation.forward_only);
    require_runs(evaluation);
    for (std::size_t r = 0; r < full.ranks.size(); ++r) {
      std::vector<Action> forwards;
      for (const Action& action : full.ranks[r]) {
        if (action.first.op == Op::forward) forwards.push_back(action);
      }
      REQUIRE(evaluation.ranks[r] == forwards);
    }
  };
  for (int pp = 1; pp <= 4; ++pp) {
    for (int m = 1; m <= 9; ++m) {
      require_forwards(one_f_one_b(Layout(pp, 1, m)), one_f_one_b(Layout(pp, 1, m), true));
      for (int vp = 1; vp <= 3; ++vp) {
        const Layout layout(pp, vp, m);
        require_forwards(breadth_first(layout), breadth_first(layout, true));
        if (legal(pp, m, m)) require_forwards(interleaved(layout, m), interleaved(layout, m, true));
      }
    }
  }
}

TEST_CASE("a schedule too large for memory is refused with the largest M", "[schedule]") {
  const Layout layout(4096, 16, 4096);
  CHECK_THAT(input_error_of([&] { interleaved(layout, 4096); }), Contains("M <= 512"));
  CHECK_THAT(input_error_of([&] { breadth_first(layout); }), Contains("M <= 512"));
}

TEST_CASE("two calls give the same schedule", "[schedule]") {
  const Layout layout(4, 3, 12);
  CHECK(interleaved(layout, 4).ranks == interleaved(layout, 4).ranks);
  CHECK(interleaved(layout, 4).num_actions() == 2 * 4 * 3 * 12);
}

}  // namespace
}  // namespace plumb
