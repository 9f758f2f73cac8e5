// SPDX-License-Identifier: Apache-2.0
//
// sim_bench.hpp: what it costs to simulate a large step: cards one message at a time, cards shared fairly, streams, and
// as a longest path where nothing is shared.
#pragma once

#include <string>
#include <vector>

namespace plumb::bench {

// Everything after the word `sim`; the exit status. Prints a row as soon as it is there, or one JSON object.
int run_sim_bench(const std::vector<std::string>& arguments);

}  // namespace plumb::bench
