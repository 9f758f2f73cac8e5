// SPDX-License-Identifier: Apache-2.0
//
// costs.hpp (private): what the flags say that computations and messages cost.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "options.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/simulate.hpp"

namespace plumb::cli {

// --action-us, else 1000 microseconds for each of F, I and W.
ActionTimes resolve_times(const Options& options);

// Whether any of --hop-us, --hop-GBps and --unit-us is given. Without them `plumb sim` takes its defaults and `plumb
// plan` lets messages cost nothing, so that a drawing shows the schedule alone.
bool gives_link(const Options& options);

// The link of those flags with the defaults of `plumb sim`: 200 us, 50 GB/s.
Link resolve_link(const Options& options, const UnitBytes& bytes);

// The costs of `plumb sim`. --action-us are the times of every chunk where the model is cut into `asked_chunks` [as
// many as `depth` has]; cut into others, a chunk takes that part of them. --costs depth: in proportion to the sublayers
// of the chunk; --costs model: by its layers.
CostModel resolve_sim_costs(const Options& options, const DepthMap& depth, const UnitBytes& bytes,
                            std::optional<int> asked_chunks = std::nullopt);

// The costs of `plumb plan`: as above, messages free unless gives_link().
CostModel resolve_plan_costs(const Options& options, const DepthMap& depth, const UnitBytes& bytes,
                             std::optional<int> asked_chunks = std::nullopt);

// --single-stream: every rank sends and receives one message at a time, in program order, and programs are planned for
// that.
SimOptions resolve_simulation(const Options& options);

// Those of the subcommand.
CostModel resolve_costs(const Options& options, const DepthMap& depth, const UnitBytes& bytes,
                        std::optional<int> asked_chunks = std::nullopt);

// Whether anything is said of times or links.
bool gives_costs(const Options& options);

// One line that says which costs are used; `microsecond` is how its unit is spelled.
std::string costs_text(const Options& options, const CostModel& costs, std::string_view microsecond = "us");

// "24.000", and what 0.0662 is: "6.62 %".
std::string milliseconds(SimTime time);
std::string percent(double fraction);

}  // namespace plumb::cli
