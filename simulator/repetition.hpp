// SPDX-License-Identifier: Apache-2.0
//
// repetition.hpp (private): tells a period again instead of simulating it.
//
// What happened in the period happens again to later steps and messages, each time one period later; a simulation that
// went through it would end in the same state, bit for bit. Only times are told: what is told has no state of its own.
// Behind it all that is open is opened anew, by what has finished until then, and must be ready, waiting or on its way
// exactly as it was a period ago; if it is not, this was no repetition after all.
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
