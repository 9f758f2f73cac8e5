// SPDX-License-Identifier: Apache-2.0
//
// lower_rank.hpp (private): from what the planner told about a rank to its program: steps, slots, waits, releases.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan_record.hpp"
#include "plumb/cache/planner.hpp"
#include "plumb/cache/program.hpp"

namespace plumb {

// What lowering needs for a while, kept from rank to rank: giving the memory back each time costs more than using it.
struct LowerMemory {
  struct Receive {
    std::int32_t hop = 0;
    Microbatch microbatch;
    std::int32_t computes_before = 0;  // computations that stand before it in the order
  };
  std::vector<std::int32_t> cells;
  std::vector<std::int32_t> marked_cells;
  std::vector<std::int64_t> comm_end;
  std::vector<Receive> receives;
  std::size_t steps_walked = 0;  // by all ranks, those of a repetition once
};

// Walks one rank's part of the plan once; of what the plan repeats, no more than until slots repeat as well. Adds stand
// where they become possible: after the arrival of the child's sum and after this rank's own contributions, children in
// the fixed order of Holding::children. `program` has everything but ranks and messages.
RankProgram lower_rank(const Program& program, const std::vector<Action>& row, const PlanRecord& plan, RankId rank,
                       const PlanCosts& costs, LowerMemory& memory);

}  // namespace plumb
