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

}  // namespace plumb::cli
