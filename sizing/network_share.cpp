// SPDX-License-Identifier: Apache-2.0
#include "network_share.hpp"

#include <algorithm>

namespace plumb {

namespace {

double expert_network_bytes(const SizeRequest& request, const Candidate& candidate, double expert_bytes) {
  const int ep = candidate.degrees.ep;
  if (ep == 1) return 0;
  double share = 1;
  if (request.cluster.tiers.size() >= 2) {
    const auto within = static_cast<int>(std::min<std::int64_t>(request.cluster.tiers.front().span_gpus, ep));
    share = static_cast<double>(ep - within) / (ep - 1);
  }
  return expert_bytes * share * candidate.microbatches / candidate.pp;
}

}  // namespace

double fixed_network_bytes(const SizeRequest& request, const Candidate& candidate, double expert_bytes,
                           std::span<const StepEnd> ends) {
  double sum = 0;
  const bool one_tier = request.cluster.tiers.size() < 2;
  for (const StepEnd& end : ends)
    sum += one_tier ? end.sent_bytes : end.outer_bytes;
  return expert_network_bytes(request, candidate, expert_bytes) + sum / candidate.pp;
}

double pipeline_network_bytes(const Cluster& cluster, const Layout& layout, const Routing& routing,
                              const LinkTable& links, const UnitBytes& bytes, int tp) {
  double sum = 0;
  for (const Transfer& transfer : routing.transfers) {
    if (is_inner(cluster, links, transfer.from, transfer.to)) continue;
    sum += transfer.units() * static_cast<double>(bytes.value + bytes.gradient_wire);
  }
  return sum * layout.microbatches() / (static_cast<double>(layout.pp()) * tp);
}

}  // namespace plumb
