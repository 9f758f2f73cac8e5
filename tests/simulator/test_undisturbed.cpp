// SPDX-License-Identifier: Apache-2.0
#include "cache/support/programs.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/against.hpp"
#include "plumb/simulator/simulate.hpp"
#include "simulator/support/models.hpp"
#include "simulator/support/timelines.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

// Messages occupy no link, so what each takes does not depend on the others.
CostModel costs_of(SimTime forward, SimTime backward, SimTime latency) {
  return CostModel(action_times(forward, backward, backward), Link{latency, SimTime(0), SimTime(0)}, storage_bytes);
}

// The times at which things happened; what was exposed is not told of a step that never was.
std::string difference(Timeline got, Timeline expected) {
  for (Timeline* timeline : {&got, &expected}) {
    for (RankTimeline& rank : timeline->ranks) {
      for (ComputeTimes& times : rank.compute)
        times.exposed = SimTime(0);
    }
  }
  return first_difference(got, expected);
}

}  // namespace

TEST_CASE("steps of which each is disturbed elsewhere leave the step that none of them was", "[simulator]") {
  Dice dice(77);
  for (int round = 0; round < 60; ++round) {
    const Program program = random_program(dice);
    CAPTURE(describe(program));
    const auto draw = [&] { return SimTime(dice.roll(1, 900'000)); };
    const SimTime forward = draw();
    const SimTime backward = draw();
    const SimTime latency = draw();
    const Timeline plain = simulate(program, costs_of(forward, backward, latency));
    const std::vector<Timeline> one{plain};
    REQUIRE(difference(undisturbed(program, one), plain) == "");
    const std::vector<Timeline> steps{simulate(program, costs_of(forward, 3 * backward, latency)),
                                      simulate(program, costs_of(2 * forward, backward, latency + draw())),
                                      simulate(program, costs_of(forward + draw(), 2 * backward, latency))};
    REQUIRE(difference(undisturbed(program, steps), plain) == "");
  }
}

TEST_CASE("no step is undisturbed where none was measured", "[simulator]") {
  Dice dice(78);
  CHECK_THROWS_AS(undisturbed(random_program(dice), {}), InputError);
}
