// SPDX-License-Identifier: Apache-2.0
//
// network_hops.hpp: what the messages of each transfer find on their way, looked up once.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "fair_share.hpp"
#include "plumb/cache/program.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/network_model.hpp"

namespace plumb {

// The messages of one transfer in one direction.
struct NetworkHop {
  RankId from;
  RankId to;
  SimTime latency{0};
  std::int64_t unit_bytes = 0;
  FlowRate rate = 0;  // of the narrowest resource; alone on it a message moves so fast
  std::uint8_t length = 0;
  std::array<ResourceId, FairShare::max_path> path{};  // different, finite ones

  std::span<const ResourceId> resources() const { return {path.data(), length}; }
};

class NetworkHops {
 public:
  // REQUIRES a sound network for the program's ranks.
  NetworkHops(const Program& program, const CostModel& costs, const NetworkModel& network);

  const NetworkHop& of(const Message& message) const { return of(message.transfer, message.direction); }
  const NetworkHop& of(TransferId transfer, Direction direction) const {
    return hops_[transfer.index()][direction == Direction::forward ? 0 : 1];
  }

 private:
  std::vector<std::array<NetworkHop, 2>> hops_;
};

// What a message from one rank to another passes.
std::vector<ResourceId> resources_between(const NetworkModel& network, RankId from, RankId to);

// A computation on a rank that takes `scale` times as long.
SimTime scaled(SimTime time, double scale);

inline double compute_scale(const NetworkModel& network, RankId rank) {
  return network.compute_scale.empty() ? 1.0 : network.compute_scale[rank.index()];
}

}  // namespace plumb
