// SPDX-License-Identifier: Apache-2.0
//
// periods_ahead.hpp (private): how often a period that came back once will come back again.
//
// As often as the program goes on as it did, step by step: kinds, chunks, waits, transfers and numbers of segments,
// neither slots nor microbatches. It is verified entry by entry, because a program may come from anywhere.
#pragma once

#include <cstdint>

#include "engine_state.hpp"
#include "period.hpp"

namespace plumb {

// REQUIRES that the simulation is at the period's end, and where it was at its begin. Zero if not even once.
std::int32_t periods_ahead(const EngineState& state, const Period& period);

}  // namespace plumb
