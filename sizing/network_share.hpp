// SPDX-License-Identifier: Apache-2.0
//
// network_share.hpp (private): of all that a device sends, what goes through tiers beyond the innermost. Tensor
// parallelism stays within that and is left out; where there is one tier only, everything else counts.
#pragma once

#include <span>

#include "plumb/cache/routing.hpp"
#include "plumb/sizing/evaluate.hpp"
#include "plumb/sizing/step_end.hpp"

namespace plumb {

inline bool is_inner(const Cluster& cluster, const LinkTable& links, RankId from, RankId to) {
  if (cluster.tiers.size() < 2) return false;
  return links.of_pair[static_cast<std::size_t>(from.value * links.num_ranks + to.value)] == 0;
}

// Of exchanges over ep and of the end of the step, mean over devices: what does not depend on the schedule.
// `expert_bytes`: what all sublayers of a microbatch send over ep.
double fixed_network_bytes(const SizeRequest& request, const Candidate& candidate, double expert_bytes,
                           std::span<const StepEnd> ends);

// Of the messages of all microbatches, mean over devices; `tp` of them share a message.
double pipeline_network_bytes(const Cluster& cluster, const Layout& layout, const Routing& routing,
                              const LinkTable& links, const UnitBytes& bytes, int tp);

}  // namespace plumb
