// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/network_model.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

void require_share(double share, std::string_view what) {
  if (!(share >= 0 && share <= max_compute_share)) {
    throw InputError(fmt::format("{} is {}: it must be 0..{}", what, share, max_compute_share));
  }
}

void require_time(SimTime time, std::string_view what) {
  if (time < SimTime(0) || time > max_duration) {
    throw InputError(fmt::format("{} is {} us: it must be 0..{:.0f}", what, to_us(time), to_us(max_duration)));
  }
}

void require_ends(const NetworkModel& network, const NetworkTier& tier, const std::vector<ResourceId>& ends,
                  int num_ranks, std::string_view what) {
  if (ends.empty()) return;
  if (ends.size() != static_cast<std::size_t>(num_ranks)) {
    throw InputError(fmt::format("tier '{}' has the {} of {} ranks: it must be all {} or none", tier.name, what,
                                 ends.size(), num_ranks));
  }
  for (std::size_t r = 0; r < ends.size(); ++r) {
    if (ends[r] != no_resource && (ends[r].value < 0 || ends[r].index() >= network.resources.size())) {
      throw InputError(fmt::format("tier '{}': the {} of rank {} is resource {}, there are {}", tier.name, what, r,
                                   ends[r].value, network.resources.size()));
    }
  }
}

void require_cores(const SharedCores& shared, int num_ranks) {
  if (shared.cores < 1) throw InputError(fmt::format("a machine has {} cores: it must have at least 1", shared.cores));
  if (shared.machine.empty()) return;
  if (shared.machine.size() != static_cast<std::size_t>(num_ranks)) {
    throw InputError(
        fmt::format("the machines of {} ranks are known: it must be all {} or none", shared.machine.size(), num_ranks));
  }
  for (std::size_t r = 0; r < shared.machine.size(); ++r) {
    if (shared.machine[r] < 0 || shared.machine[r] >= num_ranks) {
      throw InputError(
          fmt::format("rank {} is on machine {}: they are numbered 0..{}", r, shared.machine[r], num_ranks - 1));
    }
  }
}

}  // namespace

bool cores_are_scarce(const SharedCores& shared) {
  return std::any_of(shared.machine.begin(), shared.machine.end(), [&](std::int32_t machine) {
    return std::count(shared.machine.begin(), shared.machine.end(), machine) > shared.cores;
  });
}

NetworkModel uniform_network(int num_ranks, double bytes_per_s, SimTime latency) {
  NetworkModel network;
  NetworkTier tier{"network", latency, std::vector<std::int32_t>(static_cast<std::size_t>(num_ranks), 0), {}, {},
                   {},        {}};
  if (!std::isinf(bytes_per_s)) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      tier.egress.push_back(ResourceId(network.resources.size()));
      network.resources.push_back({fmt::format("rank {} egress", rank), bytes_per_s});
      tier.ingress.push_back(ResourceId(network.resources.size()));
      network.resources.push_back({fmt::format("rank {} ingress", rank), bytes_per_s});
    }
  }
  network.tiers.push_back(std::move(tier));
  return network;
}

void require_sound(const NetworkModel& network, int num_ranks) {
  if (network.tiers.empty()) throw InputError("a network without tiers moves nothing: it must have at least one");
  for (const NetworkResource& resource : network.resources) {
    const double rate = resource.bytes_per_s;
    if (!(rate >= 1 && (rate <= max_bytes_per_s || std::isinf(rate)))) {
      throw InputError(fmt::format("{} moves {} bytes per second: it must be 1..{:g}, or inf", resource.name, rate,
                                   max_bytes_per_s));
    }
  }
  for (const NetworkTier& tier : network.tiers) {
    if (tier.group.size() != static_cast<std::size_t>(num_ranks)) {
      throw InputError(
          fmt::format("tier '{}' groups {} ranks: the program has {}", tier.name, tier.group.size(), num_ranks));
    }
    require_time(tier.latency, fmt::format("the latency of tier '{}'", tier.name));
    require_ends(network, tier, tier.egress, num_ranks, "egress");
    require_ends(network, tier, tier.ingress, num_ranks, "ingress");
    require_ends(network, tier, tier.uplink_up, num_ranks, "way up");
    require_ends(network, tier, tier.uplink_down, num_ranks, "way down");
  }
  const NetworkTier& outermost = network.tiers.back();
  const auto apart = std::adjacent_find(outermost.group.begin(), outermost.group.end(), std::not_equal_to<>());
  if (apart != outermost.group.end()) {
    const auto rank = apart - outermost.group.begin();
    throw InputError(fmt::format("ranks {} and {} meet in no tier: the outermost, '{}', must be one group", rank,
                                 rank + 1, outermost.name));
  }
  const MessageProtocol& protocol = network.protocol;
  if (protocol.eager_limit_bytes < 0) {
    throw InputError(fmt::format("the eager limit is {} bytes: it must be 0 or more", protocol.eager_limit_bytes));
  }
  require_time(protocol.launch, "the launch of a message");
  require_share(protocol.compute_share_while_active, "the share of compute taken by an active message");
  require_share(protocol.compute_share_while_waiting, "the share of compute taken by a waiting message");
  if (network.streams == CommStreams::unordered &&
      (protocol.compute_share_while_active > 0 || protocol.compute_share_while_waiting > 0)) {
    throw InputError("messages take a share of compute only where they have streams: single, per-direction or batched");
  }
  require_cores(network.shared_cores, num_ranks);
  if (!network.compute_scale.empty() && network.compute_scale.size() != static_cast<std::size_t>(num_ranks)) {
    throw InputError(fmt::format("there are {} compute scales: there must be one for each of {} ranks, or none",
                                 network.compute_scale.size(), num_ranks));
  }
  for (std::size_t r = 0; r < network.compute_scale.size(); ++r) {
    const double scale = network.compute_scale[r];
    if (!(scale >= 1e-3 && scale <= 1e3)) {
      throw InputError(fmt::format("the compute scale of rank {} is {}: it must be 0.001..1000", r, scale));
    }
  }
}

}  // namespace plumb
