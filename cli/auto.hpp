// SPDX-License-Identifier: Apache-2.0
//
// auto.hpp (private): `--schedule auto`, a schedule searched for the costs that the other flags give.
#pragma once

#include "options.hpp"
#include "plumb/schedule/layout.hpp"
#include "plumb/simulator/auto_schedule.hpp"

namespace plumb::cli {

bool wants_auto(const Options& options);

// Searches for the costs that `plumb sim` or `plumb plan` uses, within --memory-chunks; either placement, unless
// --placement names one.
AutoSchedule search_schedule(const Options& options, const Layout& layout);

// What was compared, as a table.
std::string table_of(const AutoSchedule& found);

// One line: which order was chosen, where the search for it began, and what no order can beat.
std::string choice_of(const AutoSchedule& found);

// {"chosen": .., "from": null|.., "placement": .., "step_us": .., "lower_bound_us": .., "candidates": [{"schedule": ..,
// "placement": .., "peak_activation_chunks": .., "fits": .., "step_us": null|..}, ..]}.
std::string to_json(const AutoSchedule& found);

}  // namespace plumb::cli
