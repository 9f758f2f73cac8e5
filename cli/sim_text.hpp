// SPDX-License-Identifier: Apache-2.0
//
// sim_text.hpp (private): what `plumb sim` prints for people: one step, and the policies side by side.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "options.hpp"
#include "plumb/cache/program.hpp"
#include "plumb/schedule/schedule.hpp"
#include "plumb/simulator/compare.hpp"
#include "plumb/simulator/link_load.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/sizing/step_end.hpp"
#include "resolve.hpp"

namespace plumb::cli {

void print_report(const Options& options, const Depth& depth, const Program& program, const SimReport& report,
                  const std::optional<StepEnd>& end);

// The busiest interfaces, and what went through each tier. Empty where nothing is ever held.
std::string links_text(const LinkLoads& loads, SimTime step);
// [{"link":"rank 0 out",..},..] and the tiers: "links":[..],"tiers":[..]  without braces
std::string links_json(const LinkLoads& loads, SimTime step);

void print_comparison(const Depth& depth, const Schedule& schedule, const std::vector<PolicyRow>& rows);

}  // namespace plumb::cli
