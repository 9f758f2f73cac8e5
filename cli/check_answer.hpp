// SPDX-License-Identifier: Apache-2.0
//
// check_answer.hpp (private): what `plumb check` has to say, whatever kind of file it read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plumb/cache/comms_check.hpp"
#include "plumb/cache/deadlock.hpp"
#include "plumb/schedule/check.hpp"

namespace plumb::cli {

struct Answer {
  std::string subject;
  bool forward_only = false;
  std::vector<ScheduleFault> faults;  // the column is the cell's in the file; in a program JSON the place in the order
  std::vector<std::string> notes;     // legal, but worth knowing
  std::vector<ChannelVerdict> channels;   // one per model tried
  std::vector<BlockedStep> cycle;         // of the schedule itself, or of the first model that deadlocks
  std::optional<ChannelModel> deadlocks;  // that model
  bool unmatched = false;                 // there: not a cycle but one step whose partner never comes
  bool ok() const { return faults.empty() && cycle.empty(); }
};

// The first model that deadlocks gives the cycle, and receives that take another message's place become faults.
void add_channels(Answer& answer, std::vector<ChannelVerdict> channels);

// One JSON object: ok, forward_only, errors, deadlock, channels_safe, notes. Rows and columns count from 0. `deadlock`
// has the first cycle with its channels, whether it is an unmatched message instead, and in `all` those of every model.
void print_json(const Answer& answer);

// Rows and columns count from 1.
void print_text(const Answer& answer);

}  // namespace plumb::cli
