// SPDX-License-Identifier: Apache-2.0
//
// lower_slots.hpp (private): gives every tenant of a rank a slot, like registers, and every step its operands and
// waits.
#pragma once

#include "lower_steps.hpp"
#include "lower_tenants.hpp"

namespace plumb {

// Fills the ranges and pools of steps.ranks[rank]. `program` has layout, depth, routing, messages and post_ahead.
void assign_slots(const Program& program, const std::vector<ChunkShape>& shapes, RankId rank, Steps& steps);

}  // namespace plumb
