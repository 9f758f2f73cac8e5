// SPDX-License-Identifier: Apache-2.0
//
// comms_faults.hpp (private): what is wrong with a schedule with communication under any channel model.
#pragma once

#include <vector>

#include "plumb/schedule/check.hpp"
#include "plumb/schedule/comms_csv.hpp"

namespace plumb {

struct CommsFaults {
  std::vector<ScheduleFault> faults;  // by row and column
  std::vector<ScheduleFault> cycle;
  std::vector<ChunkId> empty_hops;
  // The computations are legal and every send and receive stands on its rank, once, across ranks: comms_program takes
  // it.
  bool can_be_run = false;
};

CommsFaults find_comms_faults(const CommsSchedule& schedule, std::size_t max_faults);

}  // namespace plumb
