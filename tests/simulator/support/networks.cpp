// SPDX-License-Identifier: Apache-2.0
#include "networks.hpp"

namespace plumb::test {
namespace {

constexpr CommStreams all_streams[] = {CommStreams::unordered, CommStreams::single, CommStreams::per_direction,
                                       CommStreams::batched};

}  // namespace

NetworkModel random_network(Dice& dice, int num_ranks) {
  NetworkModel network;
  const auto resources = [&](const char* name) {
    std::vector<ResourceId> ends;
    if (dice.roll(0, 4) == 0) return ends;
    const int shared_by = dice.roll(1, 3);
    for (int rank = 0; rank < num_ranks; ++rank) {
      if (rank % shared_by == 0) network.resources.push_back({name, 1e12 * dice.roll(1, 40) / 10});
      ends.push_back(dice.roll(0, 8) == 0 ? no_resource : ResourceId(network.resources.size() - 1));
    }
    return ends;
  };
  const int num_tiers = dice.roll(1, 3);
  for (int t = 0; t < num_tiers; ++t) {
    NetworkTier tier{"tier", SimTime(dice.roll(0, 1) * dice.roll(1, 900)), {}, {}, {}, {}, {}};
    const int span = t + 1 == num_tiers ? num_ranks : t + 1;
    for (int rank = 0; rank < num_ranks; ++rank)
      tier.group.push_back(rank / span);
    tier.egress = resources("egress");
    tier.ingress = dice.roll(0, 4) == 0 ? tier.egress : resources("ingress");
    tier.uplink_up = resources("up");
    tier.uplink_down = resources("down");
    network.tiers.push_back(tier);
  }
  network.streams = all_streams[dice.roll(0, 3)];
  network.protocol.eager_limit_bytes = dice.roll(0, 2) * 4000;
  network.protocol.launch = SimTime(dice.roll(0, 2) * 30);
  if (network.streams != CommStreams::unordered && dice.roll(0, 1) == 0) {
    network.protocol.compute_share_while_active = dice.roll(0, 5) * 0.1;
    network.protocol.compute_share_while_waiting = dice.roll(0, 3) * 0.1;
  }
  if (dice.roll(0, 1) == 0) {
    for (int rank = 0; rank < num_ranks; ++rank)
      network.compute_scale.push_back(1 + 0.1 * dice.roll(0, 3));
  }
  return network;
}

NetworkModel random_unshared_network(Dice& dice, int num_ranks) {
  NetworkModel network = random_network(dice, num_ranks);
  network.protocol.compute_share_while_active = 0;
  network.protocol.compute_share_while_waiting = 0;
  for (NetworkTier& tier : network.tiers) {
    tier.egress.clear();
    tier.ingress.clear();
    tier.uplink_up.clear();
    tier.uplink_down.clear();
  }
  if (dice.roll(0, 1) == 0) return network;
  network.resources.clear();
  network.streams = CommStreams::single;
  network.protocol.eager_limit_bytes = 0;
  for (int rank = 0; rank < num_ranks; ++rank)
    network.resources.push_back({"card", 1e10 * dice.roll(1, 40)});
  for (NetworkTier& tier : network.tiers) {
    for (int rank = 0; rank < num_ranks; ++rank)
      tier.egress.push_back(ResourceId(rank));
    tier.ingress = tier.egress;
  }
  return network;
}

}  // namespace plumb::test
