// SPDX-License-Identifier: Apache-2.0
//
// lower.hpp: from a schedule and a routing policy to a Program.
//
// Steps: (1) trees and transfers (routing.hpp); (2) one common linear order (planner.hpp); (3) per rank, the steps in
// that order, with the adds of arrived gradient sums where they become possible; (4) slots, assigned along the order
// like registers, so that the peak per class is exact and a slot is reused only after every user of its former occupant
// has finished. Receives may be posted early: their slot is allocated `post_ahead` compute steps before the message
// starts. Pure: equal input gives an equal program on every rank.
#pragma once

#include "plumb/cache/planner.hpp"
#include "plumb/cache/program.hpp"

namespace plumb {

struct LowerOptions {
  int post_ahead = 1;  // 0..64: unbounded posting would keep the receive buffers of all microbatches alive
  PlanCosts costs{};
  int num_threads = 0;  // at most; 0: as many as the machine has cores. Small programs take one. Never changes a bit
};

// Throws InputError when the schedule is illegal (with its first fault), does not fit the depth map, or post_ahead is
// out of range. The policy must be `standard` exactly for a standard residual.
Program lower(const Schedule& schedule, const DepthMap& depth, Policy policy, const LowerOptions& options = {});

}  // namespace plumb
