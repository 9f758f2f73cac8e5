// SPDX-License-Identifier: Apache-2.0
//
// link_load.hpp: what went through each interface in a simulated step, and for how much of the step it was in use.
//
// Without a network each rank has one way out and one way in, held by one message at a time. With one there is a row
// for each of its resources, which several ranks may share, and one for each tier. Plain data; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/network_model.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

struct LinkLoad {
  std::string name;  // "rank 3 out", or as the network's resource
  std::int64_t num_messages = 0;
  std::int64_t bytes = 0;
  SimTime busy{0};         // while at least one message moved (on batched streams: until its group was through)
  double bytes_per_s = 0;  // of a resource; 0: not one rate, or none
};

// Of all its messages over its rate and the step: at most busy / step, and less where messages moved more slowly
// than the link allows. 0 where the rate is not known.
double mean_use(const LinkLoad& load, SimTime step);

struct TierLoad {
  std::string name;
  std::int64_t num_messages = 0;
  std::int64_t bytes = 0;
};

struct LinkLoads {
  std::vector<LinkLoad> links;  // those that carried something: by rank, out before in; or in the network's order
  std::vector<TierLoad> tiers;  // all of the network
};

// O(n log n) in the messages. `timeline` from simulate(), or from simulate_network() with that network.
LinkLoads link_loads(const Program& program, const CostModel& costs, const Timeline& timeline,
                     const NetworkModel* network = nullptr);

}  // namespace plumb
