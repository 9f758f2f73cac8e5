// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <random>

#include "plumb/schedule/generators.hpp"
#include "plumb/schedule/makespan.hpp"
#include "requests.hpp"
#include "support.hpp"

namespace plumb {
namespace {

using Catch::Matchers::Contains;
using test::input_error_of;

TEST_CASE("two ranks and two microbatches run when a drawing says they do", "[schedule]") {
  const ComputeTimeline timeline = time_schedule(one_f_one_b(Layout(2, 1, 2)), {1, 1, 1});
  // rank 0: F0 F1 B0 B1, rank 1: F0 B0 F1 B1
  const std::vector<std::vector<ActionSpan>> expected = {{{0, 1}, {1, 2}, {4, 6}, {7, 9}},
                                                         {{1, 2}, {2, 4}, {4, 5}, {5, 7}}};
  for (std::size_t r = 0; r < 2; ++r) {
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(timeline.spans[r][i].start == expected[r][i].start);
      CHECK(timeline.spans[r][i].end == expected[r][i].end);
    }
  }
  CHECK(timeline.makespan == 9);
  CHECK(timeline.idle(RankId(0)) == 3);
  CHECK(timeline.idle(RankId(1)) == 3);
  CHECK(timeline.ranks[0].own_idle() == 3);
  CHECK(timeline.ranks[1].own_idle() == 0);
  CHECK(timeline.ranks[1].first == 1);
  CHECK(timeline.ranks[1].last == 7);
}

TEST_CASE("every action starts when its rank and its inputs are ready and not later", "[schedule]") {
  std::mt19937 random(3);
  const auto draw = [&] { return static_cast<double>(std::uniform_int_distribution(0, 9)(random)); };
  std::size_t checked = 0;
  test::for_each_request({.max_pp = 5, .max_vp = 3}, [&](const ScheduleRequest& request, const Layout& layout) {
    if (std::uniform_int_distribution(0, 3)(random) != 0) return;
    const Schedule schedule = make_schedule(request, layout);
    std::vector<ChunkTimes> times;
    for (int c = 0; c < layout.num_chunks(); ++c)
      times.push_back({draw(), draw(), draw()});
    const ComputeTimeline timeline = time_schedule(schedule, times, {.together = true});

    // When each value is there, found by a search of its own.
    const auto end_of = [&](bool forward, ChunkId chunk, Microbatch m) {
      const std::size_t r = layout.rank_of(chunk).index();
      for (std::size_t i = 0; i < schedule.ranks[r].size(); ++i) {
        const Action& action = schedule.ranks[r][i];
        for (const Compute* c : {&action.first, action.second ? &*action.second : nullptr}) {
          if (c == nullptr || c->chunk != chunk || c->microbatch != m || c->op == Op::backward_weight) continue;
          if ((c->op == Op::forward) == forward) return timeline.spans[r][i].end;
        }
      }
      FAIL("no such value");
      return 0.0;
    };
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
      double free = 0;
      for (std::size_t i = 0; i < schedule.ranks[r].size(); ++i) {
        const Action& action = schedule.ranks[r][i];
        double start = free;
        double lasts = 0;
        for (const Compute* c : {&action.first, action.second ? &*action.second : nullptr}) {
          if (c == nullptr) continue;
          const ChunkTimes& t = times[c->chunk.index()];
          if (c->op == Op::forward) {
            lasts += t.forward;
            if (c->chunk.value > 0) start = std::max(start, end_of(true, c->chunk.previous(), c->microbatch));
          } else if (c->op == Op::backward_weight) {
            lasts += t.backward_weight;
            start = std::max(start, end_of(false, c->chunk, c->microbatch));
          } else {
            lasts += t.backward_input + (c->op == Op::backward ? t.backward_weight : 0);
            start = std::max(start, end_of(true, c->chunk, c->microbatch));
            if (c->chunk.value < layout.num_chunks() - 1) {
              start = std::max(start, end_of(false, c->chunk.next(), c->microbatch));
            }
          }
        }
        CAPTURE(schedule.name, layout.pp(), layout.vp(), layout.microbatches(), r, i);
        REQUIRE(timeline.spans[r][i].start == start);
        REQUIRE(timeline.spans[r][i].end == start + lasts);
        free = start + lasts;
      }
      REQUIRE(timeline.ranks[r].last == free);
      REQUIRE(timeline.idle(RankId(r)) >= timeline.ranks[r].own_idle());
    }
    ++checked;
  });
  CHECK(checked > 300);
}

TEST_CASE("the makespan agrees with sweeping over the ranks", "[schedule]") {
  test::for_each_request({.max_pp = 6, .max_vp = 3}, [&](const ScheduleRequest& request, const Layout& layout) {
    const Schedule schedule = make_schedule(request, layout);
    REQUIRE(time_schedule(schedule, {1, 1, 1}, {.together = true}).makespan == test::makespan(schedule, {1, 2}));
    const std::vector<int> peaks = peak_activations(schedule);
    for (int r = 0; r < layout.pp(); ++r)
      REQUIRE(peaks[static_cast<std::size_t>(r)] == test::peak_activations(schedule, RankId(r)));
  });
}

TEST_CASE("one time for all chunks is that time for each of them", "[schedule]") {
  const Schedule schedule = zb_v(Layout(4, 2, 9, Placement::vee));
  const std::vector<ChunkTimes> each(8, ChunkTimes{2, 3, 1});
  CHECK(time_schedule(schedule, ChunkTimes{2, 3, 1}).makespan == time_schedule(schedule, each).makespan);
}

TEST_CASE("a pair takes its share of the sum of its halves", "[schedule]") {
  const Schedule schedule = dualpipe_v(Layout(4, 2, 12, Placement::vee));
  const ComputeTimeline timeline = time_schedule(schedule, {1, 1, 1}, {.together = true, .share = 0.8});
  for (std::size_t r = 0; r < 4; ++r) {
    for (std::size_t i = 0; i < schedule.ranks[r].size(); ++i) {
      if (!schedule.ranks[r][i].second) continue;
      CHECK(timeline.spans[r][i].end - timeline.spans[r][i].start == Approx(2.4));
    }
  }
  CHECK(timeline.makespan < time_schedule(schedule, {1, 1, 1}, {.together = true}).makespan);
}

// The same table with every pair taken apart.
Schedule taken_apart(Schedule schedule) {
  for (auto& actions : schedule.ranks) {
    std::vector<Action> halves;
    for (const Action& action : actions) {
      halves.push_back({action.first, std::nullopt});
      if (action.second) halves.push_back({*action.second, std::nullopt});
    }
    actions = std::move(halves);
  }
  return schedule;
}

TEST_CASE("the halves of a pair run in turn as two actions would", "[schedule]") {
  std::mt19937 random(5);
  const auto draw = [&] { return static_cast<double>(std::uniform_int_distribution(0, 9)(random)); };
  for (int pp = 1; pp <= 6; ++pp) {
    for (int m = 2 * pp; m <= 2 * pp + 5; ++m) {
      const Schedule schedule = dualpipe_v(Layout(pp, 2, m, Placement::vee));
      const Schedule apart = taken_apart(schedule);
      const ChunkTimes times{draw(), draw(), draw()};
      const ComputeTimeline in_turn = time_schedule(schedule, times);
      const ComputeTimeline expected = time_schedule(apart, times);
      REQUIRE(in_turn.makespan == expected.makespan);
      for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
        REQUIRE(in_turn.ranks[r].busy == expected.ranks[r].busy);
        REQUIRE(in_turn.ranks[r].first == expected.ranks[r].first);
        REQUIRE(in_turn.ranks[r].last == expected.ranks[r].last);
        std::size_t at = 0;
        for (std::size_t i = 0; i < schedule.ranks[r].size(); ++i) {
          REQUIRE(in_turn.spans[r][i].start == expected.spans[r][at].start);
          at += schedule.ranks[r][i].second ? 1U : 0U;
          REQUIRE(in_turn.spans[r][i].end == expected.spans[r][at].end);
          ++at;
        }
      }
    }
  }
}

TEST_CASE("a schedule that cannot run is refused with an action that never starts", "[schedule]") {
  Schedule schedule = one_f_one_b(Layout(2, 1, 2));
  std::swap(schedule.ranks[1][0], schedule.ranks[1][1]);
  CHECK_THAT(input_error_of([&] {
               time_schedule(schedule, {1, 1, 1});
             }),
             Contains("\"1f1b\" cannot run to its end") && Contains("rank 0, action 2 (0B0) never starts"));
}

TEST_CASE("times that are no times are refused", "[schedule]") {
  const Schedule schedule = one_f_one_b(Layout(3, 1, 2));
  const double bad[] = {-1, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()};
  for (const double time : bad) {
    CHECK_THAT(input_error_of([&] { time_schedule(schedule, {time, 1, 1}); }), Contains("must be finite and >= 0"));
    CHECK_THROWS_AS(time_schedule(schedule, {1, time, 1}), InputError);
    CHECK_THROWS_AS(time_schedule(schedule, {1, 1, time}), InputError);
    CHECK_THAT(input_error_of([&] {
                 time_schedule(schedule, {1, 1, 1}, {.together = true, .share = time});
               }),
               Contains("the share"));
  }
  CHECK_THAT(input_error_of([&] {
               time_schedule(schedule, {1, 1, 1}, {.together = false, .share = 0.8});
             }),
             Contains("run in turn is 1, not 0.8"));
  const std::vector<ChunkTimes> two(2);
  CHECK_THAT(input_error_of([&] { time_schedule(schedule, two); }), Contains("2 chunk times for 3 chunks"));
}

TEST_CASE("a forward-only schedule keeps no activation", "[schedule]") {
  for (const int peak : peak_activations(gpipe(Layout(3, 1, 4), true)))
    CHECK(peak == 0);
}

}  // namespace
}  // namespace plumb
