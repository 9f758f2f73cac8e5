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

struct PlanNotes {
  std::optional<ScheduleRequest> request;  // none: no formulas, for a searched order or chunks with times of their own
  std::string costs;                       // which are used
  std::string found;                       // what auto chose; else empty
};

// `report`: of a simulation of this schedule under `costs`.
std::string plan_text(const Program& program, const Depth& depth, const PlanNotes& notes, const CostModel& costs,
                      const SimReport& report);

}  // namespace plumb::cli
