// SPDX-License-Identifier: Apache-2.0
//
// pipeline_network.hpp: the NetworkModel of a pipeline laid out over a cluster: which ranks share which interface.
//
// Devices are numbered as in pipeline_costs.hpp. One pipeline is modelled, one of the dp replicas: they all run in
// step, so each has 1 / dp of an interface that they have in common. Each of the tp devices of a stage sends its share
// of a tensor to its counterpart; together they have the rate of all their interfaces. Where fewer devices make a rank
// than use one interface, the ranks on it are one resource, and so are both directions of a half-duplex one.
// With cores_per_node, ranks whose first devices lie in one span of the innermost tier share that many cores.
// Computations are not scaled here: stragglers are in the times of the CostModel already (apply_stragglers).
#pragma once

#include "plumb/simulator/network_model.hpp"
#include "plumb/sizing/cluster.hpp"
#include "plumb/sizing/device_work.hpp"

namespace plumb {

// The tiers, latencies, launch time and eager limit (of whole messages: tp times that of a device) of the cluster. What
// sending takes of a device counts on streams only; `unordered` has none. Rates beyond max_bytes_per_s are cut to it,
// which NVLink reaches between stages of 12 devices. A rank that does not lie in one span of a tier talks through outer
// ones. Throws InputError when the cluster has not the room, and when an interface is shared by more devices than a
// rank has, but not by whole ranks.
NetworkModel pipeline_network(const Cluster& cluster, int num_ranks, const Degrees& degrees,
                              CommStreams streams = CommStreams::unordered);

}  // namespace plumb
