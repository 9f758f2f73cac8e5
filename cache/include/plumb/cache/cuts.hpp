// SPDX-License-Identifier: Apache-2.0
//
// cuts.hpp: where to cut a model so that the least crosses the ranks, without making any chunk heavier.
//
// Even cuts leave slack: when `units` do not divide by the chunks, some chunks could be one unit larger. Used well, the
// slack moves cuts onto block ends (no open partial crosses) and blocks into later chunks (fewer ranks still need
// them). Weight is counted in units, which are what even cuts deal out: decoder layers, or single sublayers. Exact, by
// dynamic programming; pure.
#pragma once

#include <vector>

#include "plumb/cache/policy.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/layout.hpp"

namespace plumb {

struct CutRequest {
  int sublayers = 0;  // L
  int units = 0;      // must divide L; cuts fall between units
  int block = 0;      // S, as for DepthMap
  Residual residual = Residual::attnres_block;
  Policy policy = Policy::cached;  // whose traffic is counted; relay, cached and direct send the same
};

// Cuts for `layout`'s chunks, fit for DepthMap: among all splits into units whose heaviest chunk has at most ceil(units
// / chunks) of them, one with the least expected_units() (volume.hpp); among those the nearest to even cuts (least sum
// of distances in units), then the one with the earliest last cuts. For a standard residual these are the even cuts.
// Time and memory grow with chunks times (slack + 1); throws InputError where that exceeds 2^26, or when the request is
// not one that DepthMap would take.
std::vector<int> least_traffic_cuts(const Layout& layout, const CutRequest& request);

}  // namespace plumb
