// SPDX-License-Identifier: Apache-2.0
//
// comms_check.hpp: does a hand-written schedule with communication do what it must, and can it deadlock?
//
// Faults are wrong under any channel: a computation that is missing, misplaced or out of order, a receive that nobody
// serves, a send before its result exists, a computation whose input has not been received, a message between chunks of
// one rank. Whether the order of sends and receives can deadlock depends on the channels, so there is a verdict per
// channel model. It shares no code with lowering but the conversion in comms_program.hpp.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "plumb/cache/deadlock.hpp"
#include "plumb/schedule/check.hpp"
#include "plumb/schedule/comms_csv.hpp"

namespace plumb {

struct ChannelVerdict {
  DeadlockReport deadlock;
  // A queue without tags matches by place: this receive would get the message of another send (wrong data, no hang).
  std::optional<ScheduleFault> mismatch;
  bool safe() const { return !deadlock.deadlock && !mismatch; }
};

struct CommsCheck {
  std::vector<ScheduleFault> faults;  // by row and column; the column counts all items of the row
  std::vector<ScheduleFault> cycle;   // computations that wait for each other however fast messages are
  // Hops that no message crosses, named by the chunk before: legal where the schedule belongs to a layout with empty
  // chunks under Attention Residuals, which a file cannot tell. Only hops into a rank that has an earlier chunk.
  std::vector<ChunkId> empty_hops;
  std::vector<ChannelVerdict> channels;  // as asked for; empty if the schedule is too broken to be run
  bool ok() const;
};

// Linear in the number of items, per model.
CommsCheck check_comms(const CommsSchedule& schedule, std::span<const ChannelModel> models,
                       std::size_t max_faults = 20);

}  // namespace plumb
