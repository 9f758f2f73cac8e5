// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <numeric>

#include "cache/support/programs.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/simulator/longest_path.hpp"
#include "plumb/simulator/network.hpp"
#include "simulator/support/models.hpp"
#include "simulator/support/timelines.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

NetworkModel free_network(int num_ranks, int cores, const std::vector<std::int32_t>& machine) {
  NetworkModel network = uniform_network(num_ranks, std::numeric_limits<double>::infinity(), SimTime(0));
  network.shared_cores = {machine, cores};
  return network;
}

std::vector<std::int32_t> one_machine(int num_ranks) {
  return std::vector<std::int32_t>(static_cast<std::size_t>(num_ranks), 0);
}

SimTime work_of(const Program& program, const CostModel& costs, RankId rank) {
  SimTime work{0};
  for (const ComputeStep& step : program.ranks[rank.index()].compute)
    work += costs.time_of(step.compute);
  return work;
}

bool near(SimTime a, SimTime b, std::int64_t picoseconds) { return std::abs((a - b).count()) <= picoseconds; }

}  // namespace

TEST_CASE("two ranks on one core each have half of it while both compute", "[simulator]") {
  // One microbatch through two ranks and back overlaps nothing; with two, 0F1 and 1F0 share, then 1B0 and 1F1 do not.
  const Layout layout(2, 1, 2);
  const DepthMap depth(2, 1, DepthMap::even_cuts(2, 2, 2), Residual::standard);
  const Program program = lower(gpipe(layout), depth, Policy::standard);
  const CostModel costs = free_links();
  const Timeline timeline = simulate_network(program, costs, free_network(2, 1, {0, 0}));
  const std::vector<ComputeTimes>& first = timeline.ranks[0].compute;
  const std::vector<ComputeTimes>& second = timeline.ranks[1].compute;
  CHECK(first[0].end == us(1000));
  CHECK(first[1].end == us(3000));  // with 1F0
  CHECK(second[0].end == us(3000));
  CHECK(second[1].end == us(4000));   // rank 0 waits
  CHECK(second[2].end == us(6000));   // 1B of one microbatch, alone
  CHECK(first[2].end == us(10'000));  // 0B with 1B of the other
  CHECK(second[3].end == us(10'000));
  CHECK(timeline.step == us(12'000));
}

TEST_CASE("one core for all ranks takes as long as all work together, in any order", "[simulator]") {
  Dice dice(911);
  for (int round = 0; round < 60; ++round) {
    const Program program = random_program(dice);
    CAPTURE(describe(program));
    const ActionTimes times = action_times(us(dice.roll(1, 900)), us(dice.roll(1, 900)), us(dice.roll(0, 900)));
    const CostModel costs(times, Link{}, storage_bytes);
    const int pp = program.layout.pp();
    SimTime work{0};
    std::int64_t num_actions = 0;
    for (int rank = 0; rank < pp; ++rank) {
      work += work_of(program, costs, RankId(rank));
      num_actions += static_cast<std::int64_t>(program.ranks[static_cast<std::size_t>(rank)].compute.size());
    }
    // Somebody always computes where messages are free. An end is rounded to a picosecond and a speed to 2^-20.
    const SimTime step = simulate_network(program, costs, free_network(pp, 1, one_machine(pp))).step;
    REQUIRE(near(step, work, num_actions + work.count() / 100'000));
  }
}

TEST_CASE("cores for every rank change nothing, and fewer lie between the plain step and the work they must do",
          "[simulator]") {
  Dice dice(912);
  for (int round = 0; round < 60; ++round) {
    const Program program = random_program(dice);
    CAPTURE(describe(program));
    const ActionTimes times = action_times(us(dice.roll(1, 900)), us(dice.roll(1, 900)), us(dice.roll(0, 900)));
    const CostModel costs(times, Link{}, storage_bytes);
    const int pp = program.layout.pp();
    const Timeline plain = simulate_network(program, costs, free_network(pp, 1, {}));
    REQUIRE(first_difference(simulate_network(program, costs, free_network(pp, pp, one_machine(pp))), plain) == "");
    std::vector<std::int32_t> apart(static_cast<std::size_t>(pp));
    std::iota(apart.begin(), apart.end(), 0);
    REQUIRE(first_difference(simulate_network(program, costs, free_network(pp, 1, apart)), plain) == "");

    const int cores = dice.roll(1, pp);
    SimTime work{0};
    for (int rank = 0; rank < pp; ++rank)
      work += work_of(program, costs, RankId(rank));
    const SimTime step = simulate_network(program, costs, free_network(pp, cores, one_machine(pp))).step;
    const SimTime slack = SimTime(1'000'000) + work / 100'000;
    REQUIRE(step + slack >= plain.step);
    REQUIRE(step + slack >= work / cores);
    REQUIRE(step <= work + slack);
  }
}

TEST_CASE("shared cores are no longest path, and senseless ones are refused", "[simulator]") {
  const Layout layout(3, 1, 3);
  const DepthMap depth(3, 1, DepthMap::even_cuts(3, 3, 3), Residual::standard);
  const Program program = lower(gpipe(layout), depth, Policy::standard);
  const CostModel costs = free_links();
  CHECK(what_is_shared(program, storage_bytes, free_network(3, 2, {0, 0, 0})) == "ranks share the cores of a machine");
  CHECK(what_is_shared(program, storage_bytes, free_network(3, 2, {0, 0, 1})) == "");
  CHECK_THROWS_WITH(simulate_network(program, costs, free_network(3, 0, {})),
                    "a machine has 0 cores: it must have at least 1");
  CHECK_THROWS_WITH(simulate_network(program, costs, free_network(3, 1, {0, 0})),
                    "the machines of 2 ranks are known: it must be all 3 or none");
  CHECK_THROWS_WITH(simulate_network(program, costs, free_network(3, 1, {0, 3, 0})),
                    "rank 1 is on machine 3: they are numbered 0..2");
}
