// SPDX-License-Identifier: Apache-2.0
//
// What a latency does to the published schedules, measured elsewhere: P=4, M=32, F=1 and B=2 for a rank's full share.
#include <limits>
#include <string>
#include <vector>

#include "plumb/cache/lower.hpp"
#include "plumb/schedule/formulas.hpp"
#include "plumb/schedule/named.hpp"
#include "plumb/simulator/longest_path.hpp"
#include "plumb/simulator/network.hpp"
#include "plumb/simulator/simulate.hpp"
#include "simulator/support/models.hpp"
#include "simulator/support/networks.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

constexpr int pp = 4;
constexpr int microbatches = 32;
// One chunk's forward; a rank's full share is V of them.
constexpr SimTime forward{1'000'000};

struct Row {
  std::string schedule;
  int vp = 1;
  int group = 4;
  std::vector<double> steps;  // at latencies of 0, 0.2, 0.5 and 1 forwards of a chunk
};

Program program_of(const ScheduleRequest& request, const Layout& layout) {
  const int chunks = layout.num_chunks();
  const DepthMap depth(chunks, 1, DepthMap::even_cuts(chunks, chunks, chunks), Residual::standard);
  return lower(make_schedule(request, layout), depth, Policy::standard);
}

// The rows take an overlapped pair for one piece of work, the sum of its halves: it begins when the inputs of both are
// there, and what either makes is there at its end. Programs say that the halves run one after the other.
void fuse_pairs(Program& program) {
  for (RankProgram& rank : program.ranks) {
    const auto first_of_pair = [&](const Wait& wait) {
      return wait.on == Wait::On::compute && rank.compute[wait.step].overlaps_next;
    };
    for (Wait& wait : rank.waits) {
      if (first_of_pair(wait)) wait = {Wait::On::compute, static_cast<std::int32_t>(wait.step) + 1};
    }
    for (std::size_t i = 0; i < rank.compute.size(); ++i) {
      if (!rank.compute[i].overlaps_next) continue;
      std::vector<Wait> both;
      for (const std::size_t half : {i, i + 1}) {
        for (const Wait& wait : rank.waits_of(rank.compute[half].waits)) {
          if (wait != Wait(Wait::On::compute, static_cast<std::int32_t>(i) + 1)) both.push_back(wait);
        }
      }
      const auto begin = static_cast<std::uint32_t>(rank.waits.size());
      rank.waits.insert(rank.waits.end(), both.begin(), both.end());
      rank.compute[i].waits = {begin, static_cast<std::uint32_t>(rank.waits.size())};
      rank.compute[i + 1].waits = {begin, begin};
    }
  }
}

CostModel costs_of(SimTime latency) {
  return CostModel(action_times(forward, forward, forward), Link{latency, SimTime(0), SimTime(0)}, storage_bytes);
}

}  // namespace

TEST_CASE("latencies cost the published schedules what was measured elsewhere", "[simulator]") {
  const std::vector<Row> rows{{"1f1b", 1, 4, {105, 115.4, 131, 157}},
                              {"gpipe", 1, 4, {105, 106.2, 108, 111}},
                              {"interleaved", 2, 4, {100.5, 101.9, 104, 107.5}},
                              {"interleaved", 2, 8, {100.5, 101.1, 102, 103.5}},
                              {"zb-h1", 1, 4, {99, 101.4, 105, 131}},
                              {"zb-v", 2, 4, {97.5, 98.8, 100.8, 104.5}},
                              {"dualpipe-v", 2, 4, {99, 104.3, 113, 127.5}}};
  for (const Row& row : rows) {
    ScheduleRequest request{.kind = parse_schedule_kind(row.schedule)};
    if (row.schedule == "interleaved") request.group = row.group;
    const Layout layout(pp, row.vp, microbatches, placement_of(request.kind));
    Program program = program_of(request, layout);
    fuse_pairs(program);
    LongestPath path(program, storage_bytes, uniform_network(pp, no_limit, SimTime(0)));
    const int tenths[] = {0, 2, 5, 10};
    for (std::size_t i = 0; i < 4; ++i) {
      const SimTime latency = forward / 10 * tenths[i];
      const NetworkModel network = uniform_network(pp, no_limit, latency);
      const SimTime step = simulate(program, costs_of(latency)).step;
      CAPTURE(row.schedule, row.group, tenths[i]);
      // The rows are given to one decimal.
      CHECK(static_cast<double>(step.count()) / static_cast<double>(forward.count() * row.vp) ==
            Approx(row.steps[i]).margin(0.0501));
      CHECK(path.step(costs_of(latency), network) == step);
      CHECK(simulate_network(program, costs_of(latency), network).step == step);
    }
  }
}

TEST_CASE("without latency all three ways to simulate give the exact bubble of every schedule", "[simulator]") {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-v", "dualpipe-v"}) {
    const ScheduleRequest request{.kind = parse_schedule_kind(name)};
    const bool several = std::string(name) != "gpipe" && std::string(name) != "1f1b" && std::string(name) != "zb-h1";
    const Layout layout(pp, several ? 2 : 1, 8, placement_of(request.kind));
    const Program program = program_of(request, layout);
    const CostModel costs = costs_of(SimTime(0));
    const std::optional<double> bubble = bubble_by_formula(request, layout, {1, 1, 1});
    CAPTURE(name);
    REQUIRE(bubble);
    const double expected = 8.0 * layout.vp() * 3 + *bubble;
    const NetworkModel network = uniform_network(pp, no_limit, SimTime(0));
    const SimTime step = simulate(program, costs).step;
    CHECK(static_cast<double>(step.count()) / static_cast<double>(forward.count()) == Approx(expected));
    CHECK(simulate_network(program, costs, network).step == step);
    CHECK(LongestPath(program, storage_bytes, network).step(costs) == step);
  }
}
