// SPDX-License-Identifier: Apache-2.0
#include "cache/support/programs.hpp"
#include "periods.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/named.hpp"
#include "plumb/simulator/simulate.hpp"
#include "simulator/support/models.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

// What runs on a rank at an instant: operation and chunk, and how long it has been running.
struct Running {
  int op = -1;
  int chunk = -1;
  SimTime since{0};
  friend bool operator==(const Running&, const Running&) = default;
};

Running running(const Program& program, const Timeline& timeline, std::size_t rank, SimTime at) {
  const std::vector<ComputeTimes>& times = timeline.ranks[rank].compute;
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i].start <= at && at < times[i].end) {
      const Compute& compute = program.ranks[rank].compute[i].compute;
      return {static_cast<int>(compute.op), compute.chunk.value, at - times[i].start};
    }
  }
  return {};
}

Program plain(ScheduleKind kind, int pp, int vp, int microbatches) {
  const Layout layout(pp, vp, microbatches, placement_of(kind));
  const int chunks = layout.num_chunks();
  const DepthMap depth(chunks, chunks, DepthMap::even_cuts(chunks, chunks, chunks), Residual::standard);
  return lower(make_schedule({.kind = kind}, layout), depth, Policy::standard);
}

}  // namespace

TEST_CASE("1F1B repeats once a pair for most of a long step", "[simulator]") {
  const Program program = plain(ScheduleKind::one_f_one_b, 4, 1, 60);
  const Timeline timeline = simulate(program, free_links());
  const std::vector<Periods> periods = find_periods(program, timeline);
  REQUIRE(periods.size() == 1);
  CHECK(periods[0].length == us(3000));
  CHECK(periods[0].count >= 54);
}

TEST_CASE("within periods every rank runs what it ran one period before", "[simulator]") {
  for (const ScheduleKind kind : all_schedule_kinds()) {
    const bool single = kind == ScheduleKind::one_f_one_b || kind == ScheduleKind::gpipe;
    const Program program = plain(kind, 3, single ? 1 : 2, 36);
    for (const CostModel& costs : {free_links(), latency_only(us(70)), unit_time(us(40))}) {
      const Timeline timeline = simulate(program, costs);
      SimTime before{0};
      for (const Periods& periods : find_periods(program, timeline)) {
        CAPTURE(to_string(kind), periods.begin.count(), periods.length.count(), periods.count);
        REQUIRE(periods.begin >= before);
        REQUIRE(periods.count >= 3);
        REQUIRE(periods.end() <= timeline.step);
        before = periods.end();
        for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
          for (SimTime at = periods.begin; at + periods.length < periods.end(); at += us(250)) {
            REQUIRE(running(program, timeline, rank, at) == running(program, timeline, rank, at + periods.length));
          }
        }
      }
    }
  }
}

TEST_CASE("periods are found for every schedule with many microbatches", "[simulator]") {
  for (const ScheduleKind kind : all_schedule_kinds()) {
    const bool single = kind == ScheduleKind::one_f_one_b || kind == ScheduleKind::gpipe;
    const Program program = plain(kind, 4, single ? 1 : 2, 64);
    CAPTURE(to_string(kind));
    const Timeline timeline = simulate(program, free_links());
    SimTime spared{0};
    for (const Periods& periods : find_periods(program, timeline))
      spared += (periods.count - 1) * periods.length;
    CHECK(spared > timeline.step / 2);
  }
}
