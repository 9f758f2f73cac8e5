// SPDX-License-Identifier: Apache-2.0
//
// check.hpp: is a schedule complete, placed right, and in an order that can run?
//
// A schedule may come from a person. The check is independent of the generators: it looks only at the table. It reports
// every fault it finds (up to a limit) with row, column and token, and one cycle when the order cannot run even with
// instant communication. Communication deadlocks are another matter: see plumb/cache/deadlock.hpp.
#pragma once

#include <string>
#include <vector>

#include "plumb/schedule/schedule.hpp"

namespace plumb {

struct ScheduleFault {
  RankId rank;
  std::size_t column = 0;  // position within the rank's actions; their number if the action is missing
  std::string token;       // empty if the fault is of a whole row or schedule
  std::string why;
};

struct ScheduleCheck {
  std::vector<ScheduleFault> faults;
  std::vector<ScheduleFault> cycle;  // actions that wait for each other, in order; empty if the order can run
  bool ok() const { return faults.empty() && cycle.empty(); }
};

// Completeness (each microbatch exactly once per chunk and operation: F and either B or I+W, or F alone throughout),
// placement, ranges, F before B/I, I before W, and an order in which every action's inputs can exist. If nothing is
// wrong but that microbatches are not numbered from 0 (everywhere, or in one chunk as in torch's published 1F1B order),
// that is the fault reported. Linear in the number of actions.
ScheduleCheck check_schedule(const Schedule& schedule, std::size_t max_faults = 20);

// Throws InputError with the first fault.
void require_legal(const Schedule& schedule);

}  // namespace plumb
