// SPDX-License-Identifier: Apache-2.0
//
// schedule_file.hpp: a schedule of one's own in place of a name, --schedule FILE.csv.
//
// In torch's format: computations alone, which are lowered like those of a named schedule, or with communication, which
// is taken as it stands: every hop carries one tensor, each rank keeps its own order.
#pragma once

#include <memory>
#include <optional>

#include "options.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/comms_csv.hpp"

namespace plumb::cli {

struct ScheduleFile {
  Schedule schedule;                   // the computations
  std::optional<CommsSchedule> comms;  // all of it
};

// Whether anything is sent or received in it.
bool has_messages(const CommsSchedule& schedule);

// If --schedule names a file: reads it, once, and sets P, V, M and the placement of the options by it. Throws
// InputError if it is not legal, contradicts these flags, or stands beside one that orders computations.
void apply_schedule_file(Options& options);

// The program of a schedule: that of the file as it stands, if it has communication; else lowered. `depth` is that of
// resolve_depth(). Throws InputError if it has blocks, which the file does not move.
Program lower_as_given(const Options& options, const Schedule& schedule, const DepthMap& depth,
                       const LowerOptions& lowering);

}  // namespace plumb::cli
