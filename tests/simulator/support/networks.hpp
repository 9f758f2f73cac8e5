// SPDX-License-Identifier: Apache-2.0
//
// networks.hpp (tests): networks for property tests.
#pragma once

#include <limits>

#include "cache/support/layouts.hpp"
#include "plumb/simulator/network_model.hpp"

namespace plumb::test {

inline constexpr double no_limit = std::numeric_limits<double>::infinity();

// Tiers of any size, cards and uplinks shared or not or half-duplex, any streams, eager or not, launch, slowed
// computation, slow ranks; odd picoseconds.
NetworkModel random_network(Dice& dice, int num_ranks);

// One on which nothing is shared: no limits, or one stream per rank on cards of its own. No slowed computation.
NetworkModel random_unshared_network(Dice& dice, int num_ranks);

}  // namespace plumb::test
