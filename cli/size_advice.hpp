// SPDX-License-Identifier: Apache-2.0
//
// size_advice.hpp (private): how to use a layout that `plumb size` found: our commands, Megatron-LM's flags and
// torchtitan's settings.
#pragma once

#include <string>
#include <vector>

#include "options.hpp"
#include "plumb/sizing/search.hpp"

namespace plumb::cli {

// Simulates exactly what was simulated.
std::string sim_command(const Options& options, const SizeRequest& request, const Candidate& candidate);
// Writes torch's schedule CSV.
std::string plan_command(const Candidate& candidate, const std::string& output);

// Megatron-LM runs 1F1B and the interleaved order only.
bool megatron_runs(const Candidate& candidate);
// The argument of --pipeline-model-parallel-layout. REQUIRES megatron_runs().
std::string megatron_layout(const SizeRequest& request, const Candidate& candidate);
// Everything else, one flag with its value each.
std::vector<std::string> megatron_flags(const SizeRequest& request, const Candidate& candidate);

// Why torchtitan cannot run the layout; empty: it can.
std::string torchtitan_obstacle(const SizeRequest& request, const Candidate& candidate);
// A TOML fragment, with the modules of each stage spelt out; `csv` is read where torchtitan lacks the order. REQUIRES
// no obstacle.
std::string torchtitan_toml(const SizeRequest& request, const Candidate& candidate, const std::string& csv);

// A line for both, empty for an ordinary residual stream.
std::string frameworks_lack(const SizeRequest& request);

}  // namespace plumb::cli
