// SPDX-License-Identifier: Apache-2.0
//
// residual_traffic.hpp: what one microbatch sends and leaves resident under a residual design, policy by policy.
//
// Counted from a routing and set beside the closed formula of volume.hpp, which shares nothing with it. In values; a
// value is num_streams tensors [tokens, d]. What all microbatches under way hold together depends on times and is for
// the simulator. Pure; plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "plumb/cache/volume.hpp"
#include "plumb/sizing/residual_design.hpp"

namespace plumb {

struct ResidualTraffic {
  Policy policy = Policy::standard;
  std::int64_t forward_units = 0;
  std::int64_t backward_units = 0;  // counted from the gradients' side
  std::int64_t expected_units = 0;  // the closed formula
  std::int64_t peak_hop_units = 0;
  // On the rank that holds most of them: values it made or received by the end of a microbatch's forward, partials
  // among them, each until the backward that reads it.
  std::int64_t resident_units = 0;

  bool equals_formula() const { return forward_units == expected_units && backward_units == expected_units; }
};

// The policies that route a design's values: standard alone where one hidden state crosses, else the four others.
std::vector<Policy> policies_of(Residual residual);

// Gradient sums travel over the same holdings: the backward's count, from the parents' side.
std::int64_t backward_units(const Routing& routing);

// Throws InputError when the chunks of layout and depth differ, or the policy does not fit the residual.
ResidualTraffic residual_traffic(const Layout& layout, const DepthMap& depth, Policy policy);

}  // namespace plumb
