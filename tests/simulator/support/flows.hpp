// SPDX-License-Identifier: Apache-2.0
//
// flows.hpp (tests): sets of flows with given starts, run through FairShare and through a plain reference.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/support/layouts.hpp"
#include "fair_share.hpp"

namespace plumb::test {

struct FlowCase {
  std::vector<ResourceId> path;
  std::int64_t bytes = 0;
  SimTime start{0};
};

struct FlowSet {
  std::vector<NetworkResource> resources;
  std::vector<FlowCase> flows;
};

// Cards and uplinks of unlike capacities; flows of 1..4 of them, some of which start together.
FlowSet random_flows(Dice& dice, int max_flows);

// When each flow ends.
std::vector<SimTime> run_fair_share(const FlowSet& set);

// The same in floating point, all rates anew by the textbook at every event, in seconds.
std::vector<double> run_plainly(const FlowSet& set);

}  // namespace plumb::test
