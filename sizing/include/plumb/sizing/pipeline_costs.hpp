// SPDX-License-Identifier: Apache-2.0
//
// pipeline_costs.hpp: the CostModel of a model cut into chunks and laid out over a cluster.
//
// Devices are numbered as they usually are: tensor parallelism innermost, then data parallelism, stages outermost, so
// that rank r of the pipeline begins at device r x tp x dp. Each of the tp devices of a stage sends its share of a
// tensor to its counterpart; those that use one interface share its rate, and so do the replicas. Messages of
// different ranks do not share here; pipeline_network.hpp is a network with contention.
#pragma once

#include <span>
#include <string>

#include "plumb/schedule/layout.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/sizing/cluster.hpp"
#include "plumb/sizing/device_work.hpp"
#include "plumb/sizing/roofline.hpp"

namespace plumb {

// Which span of the tier holds all devices of the rank, from 0; -1 - rank if none does: then no other rank lies with
// it.
std::int32_t span_of_rank(const Tier& tier, int rank, const Degrees& degrees);

// `bytes` are those of a whole unit on one tensor-parallel group. Throws InputError when the cluster has not the room.
LinkTable pipeline_links(const Cluster& cluster, int num_ranks, const Degrees& degrees, const UnitBytes& bytes);

// Stragglers' chunks take their scale longer. Throws InputError when a straggler is no rank of the layout, and what
// chunk_times() and pipeline_links() do.
CostModel pipeline_costs(const ModelShape& shape, std::span<const int> cuts, const Layout& layout, const Batch& batch,
                         const Cluster& cluster, const UnitBytes& bytes, const Efficiencies& efficiencies = {});

// The same times with each rank's chunks scaled by the cluster's stragglers.
void apply_stragglers(std::vector<ActionTimes>& times, const Cluster& cluster, const Layout& layout);

}  // namespace plumb
