// SPDX-License-Identifier: Apache-2.0
//
// step_end.hpp (private): what comes after the pipeline: gradients over replicas, the optimizer; and the rate with it.
#pragma once

#include <optional>
#include <string>

#include "options.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/layout.hpp"
#include "plumb/simulator/sim_time.hpp"
#include "plumb/sizing/step_end.hpp"

namespace plumb::cli {

// Of the slowest rank. Nothing where the layers do not say it: without --cluster, with --profile.
std::optional<StepEnd> resolve_step_end(const Options& options, const DepthMap& depth);

// "gradients reduced in 12.345 ms, optimizer 3.210 ms: 1234.567 ms with the end of the step"
std::string step_end_text(const StepEnd& end, SimTime step);
// "step_end_us":{...},"step_with_end_us":..  without braces
std::string step_end_json(const StepEnd& end, SimTime step);

// The pipeline's and what comes after it.
SimTime with_end(SimTime step, const std::optional<StepEnd>& end);

}  // namespace plumb::cli
