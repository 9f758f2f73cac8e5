// SPDX-License-Identifier: Apache-2.0
//
// repetition.hpp (private): tells a period again instead of simulating it.
//
// What happened in the period happens again to later steps and messages, each time one period later; a simulation that
// went through it would end in the same state, bit for bit. Every wait that ends is counted as the simulation would
// have counted it, also those of steps far ahead, so that what would have begun is known: if that is not exactly what
// began in the period, this was no repetition after all.
#pragma once

#include <cstdint>

#include "engine_state.hpp"
#include "period.hpp"

namespace plumb {

struct NotRepeated {};  // the state is worth nothing any more

// The state goes from the period's end to `times` periods later. Returns how many steps finished meanwhile.
// REQUIRES that the period comes again so often (periods_ahead.hpp).
std::int64_t repeat(EngineState& state, const Period& period, std::int32_t times);

}  // namespace plumb
