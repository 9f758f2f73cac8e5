// SPDX-License-Identifier: Apache-2.0
//
// event_log.hpp: writes what happened in a run as JSON lines: one header, then steps, computations and messages.
//
// docs/event-log.md is the format. Every step of a rank is written from its StepRecord, after the step: nothing here
// runs inside one. It is NOT a trace for a viewer (simulator's trace.hpp makes those) and it is not read back here.
// Times are microseconds since `zero`. Streams belong to the caller; a failing stream is left in its failed state.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "plumb/cache/program.hpp"
#include "plumb/runtime/block_store.hpp"
#include "plumb/runtime/step_log.hpp"

namespace plumb {

// `made_by`: the program that ran, "plumb train".
void write_log_header(std::ostream& out, const Program& program, const SlotShape& shape, const std::string& made_by);

// REQUIRES: the record is of this program and rank. `zero_ns`: the moment that counts as 0, the same for all ranks of a
// step (the earliest start of any).
void write_log_step(std::ostream& out, const Program& program, RankId rank, const StepRecord& record,
                    std::int64_t zero_ns);

}  // namespace plumb
