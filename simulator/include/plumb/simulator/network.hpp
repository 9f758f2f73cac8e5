// SPDX-License-Identifier: Apache-2.0
//
// network.hpp: runs a Program in virtual time on a network whose resources are shared.
//
// Like simulate.hpp, but messages move all at once, each at its max-min fair share of what lies on its way, operations
// may go through streams in program order, and a rank that moves messages may compute more slowly. A rendezvous on
// streams pays the latency first, then moves; both streams are held until it is through. An eager message, and every
// message without streams, moves first and arrives the latency later; its sender is done when it has moved. The links
// of the CostModel are not looked at. Integer time, no randomness: the same input gives the same bits.
#pragma once

#include <cstdint>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/network_model.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

struct NetworkStats {
  std::int64_t num_events = 0;  // all that happened at a time of its own
  std::int64_t num_flows = 0;   // messages that occupied something
  std::int64_t num_shares = 0;  // changes of a flow's rate
};

// MessageTimes::start is when both ends were there (eager: the sender's); `sent` and `arrived` are when the operations
// were through, in a group when the whole group was. REQUIRES indices in range (verify_program). Throws InputError like
// simulate() and for a network that is not sound; SimulationStuck with the cycle of waits, the messages' sizes in it.
Timeline simulate_network(const Program& program, const CostModel& costs, const NetworkModel& network,
                          NetworkStats* stats = nullptr);

}  // namespace plumb
