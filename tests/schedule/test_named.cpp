// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <set>

#include "plumb/schedule/check.hpp"
#include "plumb/schedule/compute_csv.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/schedule/makespan.hpp"
#include "plumb/schedule/named.hpp"
#include "requests.hpp"
#include "support.hpp"

namespace plumb {
namespace {

using Catch::Matchers::Contains;
using test::for_each_request;
using test::input_error_of;

ScheduleRequest named(ScheduleKind kind) { return {.kind = kind}; }

std::string refusal(const ScheduleRequest& request, const Layout& layout) {
  const std::string text = input_error_of([&] { (void)make_schedule(request, layout); });
  CHECK(input_error_of([&] { require_fit(request, layout); }) == text);
  return text;
}

TEST_CASE("every schedule that can be asked for is complete and runs", "[schedule]") {
  for (const bool forward_only : {false, true}) {
    std::set<ScheduleKind> kinds;
    const std::size_t num = for_each_request(
        {.max_pp = 8, .max_vp = 4, .forward_only = forward_only}, [&](const auto& request, const Layout& layout) {
          const Schedule schedule = make_schedule(request, layout);
          CAPTURE(schedule.name, layout.pp(), layout.vp(), layout.microbatches(), request.group.value_or(0));
          const ScheduleCheck check = check_schedule(schedule);
          REQUIRE(check.faults.empty());
          REQUIRE(check.cycle.empty());
          REQUIRE(schedule.forward_only == forward_only);
          REQUIRE(schedule.name == to_string(request.kind));
          REQUIRE(schedule.layout == layout);
          kinds.insert(request.kind);
        });
    CHECK(kinds.size() == all_schedule_kinds().size());
    CHECK(num > 5000);
  }
}

TEST_CASE("a schedule for larger pipelines is complete and runs", "[schedule]") {
  for (const ScheduleKind kind : all_schedule_kinds()) {
    const bool single = kind == ScheduleKind::gpipe || kind == ScheduleKind::one_f_one_b;
    for (const int pp : {17, 32, 64}) {
      for (const int m : {1, 5, pp, 2 * pp, 3 * pp, 5 * pp}) {
        if (kind == ScheduleKind::dualpipe_v && m < 2 * pp) continue;
        CAPTURE(to_string(kind), pp, m);
        const Schedule schedule = make_schedule(named(kind), Layout(pp, single ? 1 : 2, m, placement_of(kind)));
        REQUIRE(check_schedule(schedule).ok());
      }
    }
  }
}

TEST_CASE("forward-only schedules are the forwards of the full ones in their order", "[schedule]") {
  for_each_request({.max_pp = 6, .max_vp = 3}, [](ScheduleRequest request, const Layout& layout) {
    const Schedule full = make_schedule(request, layout);
    request.forward_only = true;
    const Schedule evaluation = make_schedule(request, layout);
    CAPTURE(full.name, layout.pp(), layout.vp(), layout.microbatches());
    for (std::size_t r = 0; r < full.ranks.size(); ++r) {
      std::vector<Action> forwards;
      for (const Action& action : full.ranks[r]) {
        if (action.first.op == Op::forward) forwards.push_back({action.first, std::nullopt});
      }
      REQUIRE(evaluation.ranks[r] == forwards);
    }
  });
}

TEST_CASE("every schedule survives being written and read", "[schedule]") {
  for_each_request({.max_pp = 4, .max_vp = 3}, [](const ScheduleRequest& request, const Layout& layout) {
    const Schedule schedule = make_schedule(request, layout);
    const std::string text = write_compute_csv(schedule);
    REQUIRE(read_compute_csv(text, "x", layout).ranks == schedule.ranks);
    REQUIRE(write_compute_csv(read_compute_csv(text, "x")) == text);
  });
}

TEST_CASE("half and a third of the memory of 1F1B, and two activations, are enough for V-Half and V-Min",
          "[schedule]") {
  for (int pp = 1; pp <= 40; ++pp) {
    for (const int m : {1, 2, 3, pp, 2 * pp, 3 * pp + 1, 6 * pp}) {
      CAPTURE(pp, m);
      const Layout layout(pp, 2, m, Placement::vee);
      const int of_1f1b = 2 * pp;  // chunks of this size, on rank 0
      for (const int peak : peak_activations(v_half(layout)))
        REQUIRE(peak <= of_1f1b / 2 + 2);
      for (const int peak : peak_activations(v_min(layout)))
        REQUIRE(peak <= (of_1f1b + (pp % 3 == 2 ? 2 : 0)) / 3 + 2);
    }
  }
}

TEST_CASE("the building blocks of V-Half and V-Min repeat without collision on any number of ranks", "[schedule]") {
  // A collision breaks an invariant and aborts.
  for (int pp = 1; pp <= 300; ++pp) {
    const Layout layout(pp, 2, 1, Placement::vee);
    REQUIRE(v_half(layout).num_actions() == 6U * static_cast<unsigned>(pp));
    REQUIRE(v_min(layout).num_actions() == 6U * static_cast<unsigned>(pp));
  }
}

TEST_CASE("V-Half and V-Min lose no more time the more microbatches there are", "[schedule]") {
  for (int pp = 1; pp <= 24; ++pp) {
    for (const auto make : {v_half, v_min}) {
      const auto excess = [&](int m) {
        return time_schedule(make(Layout(pp, 2, m, Placement::vee), false), {1, 1, 1}).makespan - 6 * m;
      };
      CAPTURE(pp);
      REQUIRE(excess(4 * pp) == excess(12 * pp));
      REQUIRE(excess(4 * pp) <= 4 * pp);
    }
  }
}

TEST_CASE("ZB-V never waits between its first and last action when F, I and W are equal and M is at least 2P - 1",
          "[schedule]") {
  for (int pp = 1; pp <= 10; ++pp) {
    for (int m = 2 * pp - 1; m <= 4 * pp; ++m) {
      for (const RankTimes& rank : time_schedule(zb_v(Layout(pp, 2, m, Placement::vee)), {1, 1, 1}).ranks)
        REQUIRE(rank.own_idle() == 0);
    }
  }
}

TEST_CASE("the waiting within ZB-H1 is the one published", "[schedule]") {
  // P - 1 - r times F + I - W on rank r, with one chunk on each rank.
  for (int pp = 1; pp <= 8; ++pp) {
    const Schedule schedule = zb_h1(Layout(pp, 1, 3 * pp), pp);
    for (const ChunkTimes times : {ChunkTimes{1, 1, 1}, ChunkTimes{4, 6, 2}, ChunkTimes{5, 5, 3}}) {
      const ComputeTimeline timeline = time_schedule(schedule, times);
      for (int r = 0; r < pp; ++r) {
        REQUIRE(timeline.ranks[static_cast<std::size_t>(r)].own_idle() ==
                (pp - 1 - r) * (times.forward + times.backward_input - times.backward_weight));
      }
    }
  }
}

TEST_CASE("names go both ways", "[schedule]") {
  for (const ScheduleKind kind : all_schedule_kinds())
    CHECK(parse_schedule_kind(to_string(kind)) == kind);
  CHECK_THAT(input_error_of([] { parse_schedule_kind("zbv"); }), Contains("zb-v") && Contains("looped-bfs"));
  for (const GroupRule rule : {GroupRule::megatron, GroupRule::torch})
    CHECK(parse_group_rule(to_string(rule)) == rule);
  CHECK_THAT(input_error_of([] { parse_group_rule("equal"); }), Contains("megatron and torch"));
  CHECK(default_schedule(1) == ScheduleKind::one_f_one_b);
  CHECK(default_schedule(2) == ScheduleKind::interleaved);
}

TEST_CASE("a layout with the wrong number of chunks is refused with the right one", "[schedule]") {
  CHECK_THAT(refusal(named(ScheduleKind::one_f_one_b), Layout(4, 2, 8)), Contains("1F1B") && Contains("must be 1"));
  CHECK_THAT(refusal(named(ScheduleKind::gpipe), Layout(4, 3, 8)), Contains("V is 3, it must be 1, or use looped-bfs"));
  for (const ScheduleKind kind :
       {ScheduleKind::zb_v, ScheduleKind::dualpipe_v, ScheduleKind::v_half, ScheduleKind::v_min}) {
    for (const int vp : {1, 3}) {
      CHECK_THAT(refusal(named(kind), Layout(4, vp, 8, Placement::vee)), Contains("it must be 2"));
    }
    CHECK_THAT(refusal(named(kind), Layout(4, 2, 8)), Contains("needs placement vee"));
    CHECK_NOTHROW(make_schedule(named(kind), Layout(1, 2, 8)));
  }
  for (const ScheduleKind kind : {ScheduleKind::interleaved, ScheduleKind::zb_h1}) {
    CHECK_THAT(refusal(named(kind), Layout(4, 2, 8, Placement::vee)), Contains("use placement loop, or V = 1"));
    CHECK_NOTHROW(make_schedule(named(kind), Layout(4, 1, 8, Placement::vee)));
    CHECK_NOTHROW(make_schedule(named(kind), Layout(1, 2, 8, Placement::vee)));
  }
}

TEST_CASE("DualPipeV refuses fewer than 2P microbatches and says where any number runs", "[schedule]") {
  for (int pp = 1; pp <= 6; ++pp) {
    for (int m = 1; m < 2 * pp; ++m) {
      CHECK_THAT(refusal(named(ScheduleKind::dualpipe_v), Layout(pp, 2, m, Placement::vee)),
                 Contains("M >= 2P") && Contains("the nearest M is " + std::to_string(2 * pp)) && Contains("zb-v"));
    }
    CHECK_NOTHROW(make_schedule(named(ScheduleKind::dualpipe_v), Layout(pp, 2, 2 * pp, Placement::vee)));
  }
}

TEST_CASE("groups that are not legal for ZB-H1 are refused as for interleaved 1F1B", "[schedule]") {
  ScheduleRequest request = named(ScheduleKind::zb_h1);
  request.group = 4;
  CHECK_THAT(refusal(request, Layout(4, 2, 9)), Contains("ZB-H1 with P=4, M=9 cannot use group 4") &&
                                                    Contains("the nearest group is 5") &&
                                                    Contains("the nearest M is 8 or 12"));
}

TEST_CASE("torch's rule accepts exactly what torch accepts", "[schedule]") {
  const std::set<int> legal = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 16, 20, 24};
  for (int m = 1; m <= 19; ++m) {
    for (const ScheduleKind kind : {ScheduleKind::interleaved, ScheduleKind::zb_h1}) {
      ScheduleRequest request = named(kind);
      request.group_rule = GroupRule::torch;
      CAPTURE(m, to_string(kind));
      if (legal.contains(m)) {
        CHECK_NOTHROW(make_schedule(request, Layout(4, 2, m)));
      } else {
        CHECK_THROWS_AS(make_schedule(request, Layout(4, 2, m)), InputError);
      }
    }
  }
  ScheduleRequest request = named(ScheduleKind::interleaved);
  request.group_rule = GroupRule::torch;
  CHECK_THAT(refusal(request, Layout(4, 2, 9)), Contains("to 2 equal groups") && Contains("nearest M is 8 or 10"));
  CHECK_THAT(refusal(request, Layout(4, 2, 13)), Contains("to 3 equal groups") && Contains("nearest M is 12 or 15"));
}

TEST_CASE("with one chunk per rank torch's interleaved order is not plain 1F1B", "[schedule]") {
  const Layout layout(4, 1, 12);
  CHECK(interleaved_torch(layout).ranks != one_f_one_b(layout).ranks);
  CHECK(peak_activations(interleaved_torch(layout)) == std::vector<int>{7, 5, 3, 1});
  CHECK(peak_activations(one_f_one_b(layout)) == std::vector<int>{4, 3, 2, 1});
}

TEST_CASE("a group for a schedule that has none is refused instead of ignored", "[schedule]") {
  for (const ScheduleKind kind : all_schedule_kinds()) {
    if (takes_group(kind)) continue;
    const bool single = kind == ScheduleKind::gpipe || kind == ScheduleKind::one_f_one_b;
    const Layout layout(4, single ? 1 : 2, 8, placement_of(kind));
    ScheduleRequest request = named(kind);
    request.group = 4;
    CHECK_THAT(refusal(request, layout), Contains("takes no group") && Contains("interleaved and zb-h1"));
    request = named(kind);
    request.group_rule = GroupRule::torch;
    CHECK_THAT(refusal(request, layout), Contains("takes no group"));
  }
  ScheduleRequest request = named(ScheduleKind::zb_h1);
  request.group = 4;
  request.group_rule = GroupRule::torch;
  CHECK_THAT(refusal(request, Layout(4, 2, 8)), Contains("group 4 cannot be chosen with torch's rule"));
}

TEST_CASE("a table above 2^26 actions is refused with the largest M", "[schedule]") {
  const auto largest = [](ScheduleKind kind, int vp, bool forward_only) {
    ScheduleRequest request = named(kind);
    request.forward_only = forward_only;
    return refusal(request, Layout(4096, vp, 32768 / vp, placement_of(kind)));
  };
  // 2^26 / (4096 V ops)
  CHECK_THAT(largest(ScheduleKind::gpipe, 1, false), Contains("M <= 8192 here"));
  CHECK_THAT(largest(ScheduleKind::zb_h1, 1, false), Contains("M <= 5461 here"));
  CHECK_THAT(largest(ScheduleKind::interleaved, 2, false), Contains("M <= 4096 here"));
  for (const ScheduleKind kind :
       {ScheduleKind::zb_v, ScheduleKind::dualpipe_v, ScheduleKind::v_half, ScheduleKind::v_min}) {
    CHECK_THAT(largest(kind, 2, false), Contains("M <= 2730 here"));
    CHECK_THAT(largest(kind, 2, true), Contains("M <= 8192 here"));
  }
}

TEST_CASE("two calls give the same schedule of every kind", "[schedule]") {
  for_each_request({.max_pp = 4, .max_vp = 2}, [](const ScheduleRequest& request, const Layout& layout) {
    REQUIRE(make_schedule(request, layout).ranks == make_schedule(request, layout).ranks);
  });
}

}  // namespace
}  // namespace plumb
