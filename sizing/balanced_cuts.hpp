// SPDX-License-Identifier: Apache-2.0
//
// balanced_cuts.hpp (private): cuts between decoder layers by how long they take.
#pragma once

#include <span>
#include <vector>

namespace plumb {

// `weights`: what each decoder layer takes; `tail` comes on top of the last chunk. Cuts in layers, one end per chunk,
// no chunk empty: the heaviest chunk is as light as it can be, and within that each cut is as near as possible to an
// equal share of everything before it. REQUIRES 1 <= chunks <= layers. O(layers x log).
std::vector<int> balanced_cuts(std::span<const double> weights, double tail, int chunks);

}  // namespace plumb
