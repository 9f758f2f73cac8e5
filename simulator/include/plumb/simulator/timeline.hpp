// SPDX-License-Identifier: Apache-2.0
//
// timeline.hpp: what happened when in one simulated step.
//
// The one record behind table, JSON, trace and memory curve: nothing else comes out of a simulation. Its vectors run
// parallel to those of the Program it belongs to. Times count from the start of the step. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/sim_time.hpp"

namespace plumb {

struct ComputeTimes {
  SimTime start{0};
  SimTime end{0};
  // The last part of the rank's idle time before `start` in which everything this step needed had been computed
  // somewhere and was only on its way: latency, wire, queueing. Zero when the rank was busy or the inputs did not exist
  // yet.
  SimTime exposed{0};
};

struct MessageTimes {
  SimTime send_ready{0};   // the sender has all segments
  SimTime posted{0};       // the receiver's slots are free
  SimTime start{0};        // holds both network ends from here
  SimTime sent{0};         // to here; the sender's slots may be reused
  SimTime arrived{0};      // usable at the receiver
  std::int32_t units = 0;  // segments that arrived, counted on the receive step
};

struct RankTimeline {
  std::vector<ComputeTimes> compute;  // like RankProgram::compute
  std::vector<SimTime> comm_done;     // like RankProgram::comm: sent, arrived, added, zeroed
};

struct Timeline {
  std::vector<RankTimeline> ranks;
  std::vector<MessageTimes> messages;  // like Program::messages
  SimTime step{0};                     // the end of the last event

  // When the awaited step had finished.
  SimTime finished(RankId rank, Wait wait) const {
    const RankTimeline& times = ranks[rank.index()];
    const auto step_index = static_cast<std::size_t>(wait.step);
    return wait.on == Wait::On::compute ? times.compute[step_index].end : times.comm_done[step_index];
  }
};

}  // namespace plumb
