// SPDX-License-Identifier: Apache-2.0
//
// simulate_steps.hpp (private): the two ways to simulate a program. Both give the same bits.
//
// REQUIRE that the costs fit the program. They throw as simulate() does.
#pragma once

#include <cstdint>
#include <optional>

#include "plumb/simulator/simulate.hpp"

namespace plumb {

// Through every step.
Timeline simulate_step_by_step(const Program& program, const CostModel& costs, const SimOptions& options);

struct RepeatedTimeline {
  Timeline timeline;
  std::int64_t num_repeated = 0;  // steps that it was enough to tell
};

// What comes back is told again instead of gone through, and each rank knows no more than about `open_ahead`
// computations of its program. Nothing if that was too few, if what was told turned out not to be what the program
// says, or if anything is wrong with the program.
std::optional<RepeatedTimeline> simulate_repeating(const Program& program, const CostModel& costs,
                                                   const SimOptions& options, std::int32_t open_ahead);

}  // namespace plumb
