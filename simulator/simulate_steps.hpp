// SPDX-License-Identifier: Apache-2.0
//
// simulate_steps.hpp (private): the two ways to simulate a program. Both give the same bits.
//
// REQUIRE that the costs fit the program.
#pragma once

#include <optional>

#include "plumb/simulator/simulate.hpp"
#include "program_cut.hpp"

namespace plumb {

// Through every step. Throws as simulate() does.
Timeline simulate_step_by_step(const Program& program, const CostModel& costs, const SimOptions& options);

// Through what the cut leaves, if the simulation comes back to where it was while it can; else, or if anything is wrong
// with the program, nothing.
std::optional<Timeline> simulate_shortened(const Program& program, const ProgramCut& cut, const CostModel& costs,
                                           const SimOptions& options);

}  // namespace plumb
