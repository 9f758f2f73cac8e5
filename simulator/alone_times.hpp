// SPDX-License-Identifier: Apache-2.0
//
// alone_times.hpp: what messages would take with nobody beside them: what they took beyond that was queueing.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "network_hops.hpp"

namespace plumb {

class AloneTimes {
 public:
  // One message at a time: all that one takes from its start on is its own.
  AloneTimes() = default;
  AloneTimes(const Program& program, const CostModel& costs, const NetworkModel& network)
      : launch_(network.protocol.launch) {
    const NetworkHops hops(program, costs, network);
    for (std::size_t t = 0; t < program.routing.transfers.size(); ++t) {
      const auto time = [&](Direction direction) {
        const NetworkHop& hop = hops.of(TransferId(t), direction);
        const SimTime wire =
            hop.length == 0 ? SimTime(0) : flow_time(hop.unit_bytes * program.routing.transfers[t].units(), hop.rate);
        return hop.latency + wire;
      };
      of_transfer_.push_back({time(Direction::forward), time(Direction::backward)});
    }
  }

  // Of what passed between start and end, the part that it takes alone.
  SimTime of(const Message& message, SimTime passed) const {
    if (of_transfer_.empty()) return passed;
    return std::min(passed, of_transfer_[message.transfer.index()][message.direction == Direction::forward ? 0 : 1]);
  }
  SimTime launch() const { return launch_; }

 private:
  SimTime launch_{0};
  std::vector<std::array<SimTime, 2>> of_transfer_;  // [transfer][direction]; empty: no limit
};

}  // namespace plumb
