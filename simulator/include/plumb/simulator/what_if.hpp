// SPDX-License-Identifier: Apache-2.0
//
// what_if.hpp: by how much the step would be shorter if something took less of its time.
//
// Each answer is a simulation of the same program, its order unchanged, with that thing taking a tenth (or so) less
// time: not an estimate from the critical path, which says only where to look. Where nothing is shared a LongestPath is
// built once and evaluated; else every answer costs a simulation, so there are at most `most` of them: everything as a
// whole first, then what lies on the critical path, the longest first. Pure; plain data.
#pragma once

#include <string>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/critical_path.hpp"
#include "plumb/simulator/network_model.hpp"
#include "plumb/simulator/simulate.hpp"

namespace plumb {

struct WhatIfRequest {
  double less = 0.1;  // of its time; a rate becomes 1 / (1 - less) times as high
  int most = 40;
  SimOptions simulation{};
  const NetworkModel* network = nullptr;  // instead of `simulation`
};

struct WhatIf {
  std::string what;  // "rank 3 computes", "all latencies", "messages from rank 3 to rank 4", "node 0 out"
  SimTime step{0};
  SimTime saves{0};  // of `timeline`'s step; may be negative, where an order that fits no more gets in the way
};

// What saves most first. `path` and `timeline` of that program, costs and network. Throws as simulate() does.
std::vector<WhatIf> what_if(const Program& program, const CostModel& costs, const Timeline& timeline,
                            const std::vector<PathPiece>& path, const WhatIfRequest& request = {});

}  // namespace plumb
