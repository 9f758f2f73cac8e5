// SPDX-License-Identifier: Apache-2.0
//
// cluster.hpp (private): what --cluster, the degrees and --profile say that computations and messages cost.
#pragma once

#include <optional>
#include <string>

#include "options.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/layout.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/network_model.hpp"
#include "plumb/sizing/device_work.hpp"
#include "plumb/sizing/footprint.hpp"

namespace plumb::cli {

// --tp, --ep and --dp; what a microbatch is and how it is computed; --sharding.
Degrees resolve_degrees(const Options& options);
Batch resolve_batch(const Options& options, const DepthMap& depth);
Sharding resolve_sharding(const Options& options);

// Throws InputError where --cluster, --profile and the flags that go with or against them do not fit together.
void require_cost_flags_fit(const Options& options);

// REQUIRES --cluster or --profile. Times from the profile where one is given, else by the layers of --model; links from
// the cluster, else those of the flags for messages.
CostModel resolve_cluster_costs(const Options& options, const DepthMap& depth, const UnitBytes& bytes);

// REQUIRES --cluster. Its interfaces as the ranks share them, its protocol.
NetworkModel resolve_cluster_network(const Options& options, CommStreams streams);

// "times of each chunk by the layers of kimi-k3 on h100, 8 x 8 devices per rank".
std::string cluster_text(const Options& options);

double tokens_per_second(const Options& options, const Layout& layout, SimTime step);  // per device

// Operations that the model needs for so many tokens per second and device, as a share of a device's peak; none without
// a model.
std::optional<double> share_of_peak(const Options& options, double tokens_per_s);

// "10250 tokens per second and device; 41.2 % of their peak" of a step on the cluster: operations that the model needs,
// without recomputation.
std::string rate_text(const Options& options, const Layout& layout, SimTime step);

// The cluster as it was understood: YAML, or JSON.
std::string shown_cluster(const Options& options, bool json);

}  // namespace plumb::cli
