// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/pipeline_network.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "plumb/sizing/pipeline_costs.hpp"

namespace plumb {
namespace {

// How many consecutive ranks use one interface of the tier.
int ranks_per_interface(const Cluster& cluster, const Tier& tier, const Degrees& degrees) {
  if (tier.shared_by_gpus <= degrees.gpus()) return 1;
  if (tier.shared_by_gpus % degrees.gpus() != 0) {
    throw InputError(
        fmt::format("cluster {}: {} devices share an interface of {} and a rank has tp x dp = {}: with --sharing fair "
                    "that must be at "
                    "least {} or divide it",
                    cluster.name, tier.shared_by_gpus, tier.name, degrees.gpus(), tier.shared_by_gpus));
  }
  return tier.shared_by_gpus / degrees.gpus();
}

class NetworkBuilder {
 public:
  NetworkBuilder(const Cluster& cluster, int num_ranks, const Degrees& degrees)
      : cluster_(cluster), num_ranks_(num_ranks), degrees_(degrees) {}

  NetworkModel run() {
    for (const Tier& tier : cluster_.tiers)
      add(tier);
    // The innermost tier that holds all ranks is the last that any of them uses; none may come after it.
    const auto holds_all = [](const NetworkTier& tier) {
      return std::all_of(tier.group.begin(), tier.group.end(), [&](std::int32_t g) { return g == tier.group[0]; });
    };
    const auto last = std::find_if(network_.tiers.begin(), network_.tiers.end(), holds_all);
    if (last != network_.tiers.end()) network_.tiers.erase(last + 1, network_.tiers.end());
    return std::move(network_);
  }

 private:
  void add(const Tier& tier) {
    NetworkTier made;
    made.name = tier.name;
    made.latency = from_us(tier.latency_us, "the latency of a tier");
    for (int rank = 0; rank < num_ranks_; ++rank)
      made.group.push_back(span_of_rank(tier, rank, degrees_));
    add_interfaces(tier, made);
    network_.tiers.push_back(std::move(made));
  }

  void add_interfaces(const Tier& tier, NetworkTier& made) {
    const int ranks = ranks_per_interface(cluster_, tier, degrees_);
    // Of one replica: its devices' part of all the interfaces of a rank.
    const double part = static_cast<double>(degrees_.tp) / std::min(tier.shared_by_gpus, degrees_.gpus());
    const double rate = std::min(tier.GBps_per_dir * 1e9 * tier.efficiency * part, max_bytes_per_s);
    for (int rank = 0; rank < num_ranks_; ++rank) {
      if (rank % ranks == 0) {
        const int last = std::min(rank + ranks, num_ranks_) - 1;
        const std::string users = last > rank ? fmt::format("{} of ranks {}-{}", tier.name, rank, last)
                                              : fmt::format("{} of rank {}", tier.name, rank);
        egress_ = add_resource(tier.full_duplex ? users + " out" : users, rate);
        ingress_ = tier.full_duplex ? add_resource(users + " in", rate) : egress_;
      }
      made.egress.push_back(egress_);
      made.ingress.push_back(ingress_);
    }
  }

  ResourceId add_resource(std::string name, double rate) {
    network_.resources.push_back({std::move(name), rate});
    return ResourceId(network_.resources.size() - 1);
  }

  const Cluster& cluster_;
  const int num_ranks_;
  const Degrees& degrees_;
  NetworkModel network_;
  ResourceId egress_;
  ResourceId ingress_;
};

// Ranks lie in order, so a machine ends where the next begins.
SharedCores cores_of(const Cluster& cluster, int num_ranks, const Degrees& degrees) {
  SharedCores shared;
  if (!cluster.cores_per_node) return shared;
  shared.cores = *cluster.cores_per_node;
  const std::int64_t span = cluster.tiers.front().span_gpus;
  std::int64_t before = 0;
  std::int32_t machine = 0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::int64_t here = span == 0 ? 0 : static_cast<std::int64_t>(rank) * degrees.gpus() / span;
    machine += here != before ? 1 : 0;
    before = here;
    shared.machine.push_back(machine);
  }
  return shared;
}

}  // namespace

NetworkModel pipeline_network(const Cluster& cluster, int num_ranks, const Degrees& degrees, CommStreams streams) {
  require_room(cluster, static_cast<std::int64_t>(num_ranks) * degrees.gpus());
  NetworkModel network = NetworkBuilder(cluster, num_ranks, degrees).run();
  network.streams = streams;
  MessageProtocol& protocol = network.protocol;
  protocol.eager_limit_bytes = cluster.p2p.eager_limit_bytes * degrees.tp;
  protocol.launch = from_us(cluster.p2p.launch_us, "the launch of a message");
  if (streams != CommStreams::unordered) {
    protocol.compute_share_while_active = cluster.p2p.sm_fraction_while_active;
    protocol.compute_share_while_waiting = cluster.p2p.sm_fraction_while_waiting;
  }
  network.shared_cores = cores_of(cluster, num_ranks, degrees);
  require_sound(network, num_ranks);
  return network;
}

}  // namespace plumb
