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

// `report`: of a simulation of this schedule under `costs`.
std::string plan_text(const Program& program, const Depth& depth, const ScheduleRequest& request,
                      const CostModel& costs, const SimReport& report);

}  // namespace plumb::cli
