// SPDX-License-Identifier: Apache-2.0
//
// order.hpp: can the actions run in the order in which they stand?
//
// One untimed run with instant communication: each rank takes its next action as soon as its inputs exist. What is left
// over when nobody can move contains a cycle.
#pragma once

#include <vector>

#include "plumb/schedule/check.hpp"

namespace plumb {

// Actions that wait for each other, in order, or nothing if all can run. An action waits for an input, or for the
// action before which its rank is stuck. REQUIRES: the schedule is complete and placed by its layout. Linear.
std::vector<ScheduleFault> find_cycle(const Schedule& schedule);

}  // namespace plumb
