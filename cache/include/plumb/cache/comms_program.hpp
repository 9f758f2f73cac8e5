// SPDX-License-Identifier: Apache-2.0
//
// comms_program.hpp: between Programs and torch's schedules with communication, both ways.
//
// The CSV knows one message per hop to the next chunk, so only the policies standard, naive and relay can be written;
// its computations and messages then follow one common linear order at both ends. The other way, a schedule that may
// come from a person becomes a Program of a standard residual which keeps each rank's own order, so that everything
// that interprets programs (simulator, deadlock checker) can be asked about it as it stands. Pure functions.
#pragma once

#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/schedule/comms_csv.hpp"

namespace plumb {

// Each rank's computations and messages, by one linear order for all ranks that follows the program's: sends directly
// behind what makes them, receives where their message starts. An overlapped pair is one item. Empty hops have no
// tokens on either side. Sums that join on the way (adds) have no tokens. Throws InputError for policies cached and
// direct.
CommsSchedule comms_schedule(const Program& program);

// Every hop carries one tensor; every tensor has a slot of its own, so that no order of the file waits for memory, as
// torch does it. UNSHARD, RESHARD and REDUCE_GRAD become nothing. Sends or receives whose other end is missing stay
// alone. REQUIRES computations that are complete and legal (check_schedule), communication on the rank of its chunk,
// across ranks and nowhere twice; throws InputError naming the first item that is not so.
Program comms_program(const CommsSchedule& schedule);

}  // namespace plumb
