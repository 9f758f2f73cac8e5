// SPDX-License-Identifier: Apache-2.0
//
// step_end.hpp: what a step takes after the pipeline's last action: gradients are reduced over replicas, the optimizer
// changes the weights.
//
// None of it is hidden behind computation, which is the careful assumption: frameworks hide part of the reduction in
// the cool-down. A rank may begin when it has computed its last; here all begin when the pipeline is through, and the
// step ends with the slowest rank. Reductions are rings over the devices that hold the same parameters, at the rate
// with which their ring passes each tier (all interfaces of a node serve it). Seconds; pure.
#pragma once

#include <span>
#include <vector>

#include "plumb/schedule/layout.hpp"
#include "plumb/sizing/cluster.hpp"
#include "plumb/sizing/footprint.hpp"
#include "plumb/sizing/roofline.hpp"

namespace plumb {

// `gpus` devices `stride` apart from `first` on, in a ring: seconds of one reduce-scatter or all-gather of `bytes`.
// `sharing`: devices that send at the same time, and so share interfaces. Throws InputError when the cluster lacks
// room.
double ring_pass_seconds(const Cluster& cluster, std::int64_t first, std::int64_t gpus, std::int64_t stride,
                         double bytes, std::int64_t sharing);

// The share of such a ring's hops that leaves the innermost tier.
double share_beyond_innermost(const Cluster& cluster, std::int64_t first, std::int64_t gpus, std::int64_t stride);

struct StepEnd {
  double reduce_seconds = 0;     // gradients; with Sharding::gradients those of all microbatches
  double gather_seconds = 0;     // weights back, where the optimizer is sharded
  double optimizer_seconds = 0;  // bound by memory
  double sent_bytes = 0;         // by one device, all of it
  double outer_bytes = 0;        // of these through tiers beyond the innermost
  double total() const { return reduce_seconds + gather_seconds + optimizer_seconds; }
};

// Per rank. None: an all-reduce of fp32 gradients (two passes). Optimizer: reduce-scatter, bf16 weights gathered.
// Gradients: a reduce-scatter per microbatch. Parameters whole on all tp devices are summed over those as well. Adam
// reads gradient, master copy and moments, writes these and the weights: 30 bytes per parameter that is its own, and 4
// to clear each gradient. `parameters`: held_parameters(). Throws InputError when the cluster lacks room.
std::vector<StepEnd> step_ends(std::span<const HeldParameters> parameters, const Layout& layout, const Batch& batch,
                               Sharding sharding, const Cluster& cluster, const Efficiencies& efficiencies = {});

// The slowest rank's.
double seconds(std::span<const StepEnd> ends);

}  // namespace plumb
