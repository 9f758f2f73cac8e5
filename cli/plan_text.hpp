// SPDX-License-Identifier: Apache-2.0
//
// plan_text.hpp (private): a program explained: phases, memory and bubble, each with the formula that gives it.
#pragma once

#include <string>

#include "plumb/cache/program.hpp"
#include "plumb/schedule/named.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/report.hpp"
#include "resolve.hpp"

namespace plumb::cli {

// `report`: of a simulation of this schedule under `costs`. Without a request there is no formula: a searched order, or
// chunks with times of their own.
std::string plan_text(const Program& program, const Depth& depth, const std::optional<ScheduleRequest>& request,
                      const CostModel& costs, const SimReport& report);

}  // namespace plumb::cli
