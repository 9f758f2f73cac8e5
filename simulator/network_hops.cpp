// SPDX-License-Identifier: Apache-2.0
#include "network_hops.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plumb {
namespace {

const NetworkTier& tier_of(const NetworkModel& network, RankId from, RankId to) {
  for (const NetworkTier& tier : network.tiers) {
    if (tier.group[from.index()] == tier.group[to.index()]) return tier;
  }
  return network.tiers.back();
}

NetworkHop make_hop(const NetworkModel& network, RankId from, RankId to, std::int64_t unit_bytes) {
  const NetworkTier& tier = tier_of(network, from, to);
  NetworkHop hop{from, to, tier.latency, unit_bytes, std::numeric_limits<FlowRate>::max(), 0, {}};
  const auto pass = [&](const std::vector<ResourceId>& ends, RankId rank) {
    if (ends.empty() || ends[rank.index()] == no_resource) return;
    const ResourceId resource = ends[rank.index()];
    const double bytes_per_s = network.resources[resource.index()].bytes_per_s;
    const auto passed = hop.resources();
    if (std::isinf(bytes_per_s) || std::find(passed.begin(), passed.end(), resource) != passed.end()) return;
    hop.path[hop.length++] = resource;
    hop.rate = std::min(hop.rate, flow_rate(bytes_per_s));
  };
  pass(tier.egress, from);
  pass(tier.uplink_up, from);
  pass(tier.uplink_down, to);
  pass(tier.ingress, to);
  return hop;
}

}  // namespace

NetworkHops::NetworkHops(const Program& program, const CostModel& costs, const NetworkModel& network) {
  const UnitBytes& bytes = costs.bytes();
  hops_.reserve(program.routing.transfers.size());
  for (const Transfer& transfer : program.routing.transfers) {
    hops_.push_back({make_hop(network, transfer.from, transfer.to, bytes.value),
                     make_hop(network, transfer.to, transfer.from, bytes.gradient_wire)});
  }
}

std::vector<ResourceId> resources_between(const NetworkModel& network, RankId from, RankId to) {
  const NetworkHop hop = make_hop(network, from, to, 0);
  return {hop.resources().begin(), hop.resources().end()};
}

SimTime scaled(SimTime time, double scale) {
  if (scale == 1.0) return time;
  return SimTime(std::llround(static_cast<double>(time.count()) * scale));
}

}  // namespace plumb
