// SPDX-License-Identifier: Apache-2.0
//
// trace.hpp: a timeline as Chrome-trace JSON, to be dropped on ui.perfetto.dev.
//
// One process per rank; one track for its computations and one per lane of its network, sending and receiving, so that
// slices on a track never overlap; arrows from sender to receiver; counters for what is resident. Times in microseconds
// with three decimals. Written as a stream, nothing is kept. About 0.3 kB per message and 0.1 kB per change of memory:
// choose ranks or a window when the step is large, browsers give up near 200 MB.
#pragma once

#include <iosfwd>
#include <optional>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/memory_classes.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

struct TraceOptions {
  std::vector<RankId> ranks;  // empty: all
  SimTime from{0};            // slices that lie wholly outside [from, to] are left out
  std::optional<SimTime> to = std::nullopt;
  bool memory = true;                                // counters
  std::optional<DeviceBytes> device = std::nullopt;  // counters of a device's bytes by class, too
};

// Throws InputError for a rank the program does not have. A failing stream is left in its failed state for the caller
// to see.
void write_trace(std::ostream& out, const Program& program, const CostModel& costs, const Timeline& timeline,
                 const TraceOptions& options = {});

}  // namespace plumb
