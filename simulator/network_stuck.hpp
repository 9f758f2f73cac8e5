// SPDX-License-Identifier: Apache-2.0
//
// network_stuck.hpp: the cycle of waits when a simulation on a network can go no further.
#pragma once

#include <cstdint>
#include <vector>

#include "comm_groups.hpp"
#include "step_graph.hpp"

namespace plumb {

struct StuckNetwork {
  const Program& program;
  const StepGraph& graph;
  const CommGroups& groups;
  std::vector<bool> finished;       // [step]
  std::vector<bool> eager;          // [message]
  std::vector<std::int64_t> bytes;  // [message]
};

// Throws SimulationStuck whose steps are the cycle, each waiting for the next one's.
[[noreturn]] void throw_stuck(const StuckNetwork& stuck);

}  // namespace plumb
