// SPDX-License-Identifier: Apache-2.0
//
// exposure.hpp: where a rank's exposed communication went: wait, queue, wire.
//
// Exposed communication is the idle time before a computation in which all that it needs had been computed somewhere
// and was on its way (timeline.hpp). It is followed back along the message that came last, over every hop, and split:
// `wire` a message was on its way (launch, latency, its bytes at the rate it has alone); `queue` both ends were ready
// and it had not started, or moved more slowly because it shared; `wait` the sender was ready and the receive was not:
// a slot not free, a thread not yet awake. Works alike on a simulated timeline and on a measured one. O(steps).
#pragma once

#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/network_model.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

struct Exposure {
  SimTime wait{0};
  SimTime queue{0};
  SimTime wire{0};
  SimTime total() const { return wait + queue + wire; }
  friend bool operator==(const Exposure&, const Exposure&) = default;
};

// [rank]. total() is the rank's sum of ComputeTimes::exposed. One message at a time: all from its start on is wire.
std::vector<Exposure> exposure(const Program& program, const Timeline& timeline);

// The same of a timeline of simulate_network().
std::vector<Exposure> exposure(const Program& program, const Timeline& timeline, const CostModel& costs,
                               const NetworkModel& network);

// Completes a timeline that was measured. Given: computations' start and end, messages' send_ready, posted, start and
// arrived, sent and comm_done of sends and receives. Added: units, comm_done of sums and zeroes (when the last of what
// they wait for was there; sums take no time here), `exposed`, and `step` if it is shorter than the last event.
void complete_measured(const Program& program, Timeline& timeline);

}  // namespace plumb
