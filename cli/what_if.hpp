// SPDX-License-Identifier: Apache-2.0
//
// what_if.hpp (private): `plumb sim --what-if`: the critical path of a step, and what being faster somewhere saves.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "options.hpp"
#include "plumb/cache/program.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/critical_path.hpp"
#include "plumb/simulator/network_model.hpp"
#include "plumb/simulator/timeline.hpp"
#include "plumb/simulator/what_if.hpp"

namespace plumb::cli {

struct WhatIfs {
  std::vector<PathPiece> path;
  std::vector<WhatIf> rows;
};

// Simulates the step many times, fewer where it is large.
WhatIfs resolve_what_ifs(const Options& options, const Program& program, const CostModel& costs,
                         const std::optional<NetworkModel>& network, const Timeline& timeline);

// `whole`: what `step` is called, "step" or, where more follows, "pipeline".
std::string what_if_text(const WhatIfs& found, SimTime step, std::string_view whole);
// "critical_path":[..],"what_if":[..]  without braces
std::string what_if_json(const WhatIfs& found);

}  // namespace plumb::cli
