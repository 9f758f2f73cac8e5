// SPDX-License-Identifier: Apache-2.0
//
// costs.hpp (private): what the flags say that computations and messages cost.
#pragma once

#include "options.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/simulator/cost_model.hpp"

namespace plumb::cli {

// --action-us, else 1000 microseconds for each of F, I and W.
ActionTimes resolve_times(const Options& options);

// Whether any of --hop-us, --hop-GBps and --unit-us is given. Without them `plumb sim` takes its defaults and `plumb
// plan` lets messages cost nothing, so that a drawing shows the schedule alone.
bool gives_link(const Options& options);

// The link of those flags with the defaults of `plumb sim`: 200 us, 50 GB/s.
Link resolve_link(const Options& options, const UnitBytes& bytes);

// The costs of `plumb sim`: --action-us for every chunk, or with --costs model each chunk's own.
CostModel resolve_sim_costs(const Options& options, const DepthMap& depth, const UnitBytes& bytes);

// The costs of `plumb plan`: as above, messages free unless gives_link().
CostModel resolve_plan_costs(const Options& options, const DepthMap& depth, const UnitBytes& bytes);

// "24.000", and what 0.0662 is: "6.62 %".
std::string milliseconds(SimTime time);
std::string percent(double fraction);

}  // namespace plumb::cli
