// SPDX-License-Identifier: Apache-2.0
//
// lower_steps.hpp (private): the steps of every rank in the common order, before slots are assigned.
//
// It also answers, for any (chunk or transfer or holding, microbatch), which step of which rank handles it; slot
// assignment and the waits are built from those answers.
#pragma once

#include <cstdint>
#include <vector>

#include "plumb/cache/planner.hpp"
#include "plumb/cache/program.hpp"

namespace plumb {

// A dense table [row][microbatch] of step indices, -1 where there is none.
class StepTable {
 public:
  StepTable(std::size_t rows, int microbatches)
      : microbatches_(static_cast<std::size_t>(microbatches)), steps_(rows * microbatches_, -1) {}
  std::int32_t& at(std::size_t row, Microbatch microbatch) { return steps_[row * microbatches_ + microbatch.index()]; }
  std::int32_t at(std::size_t row, Microbatch microbatch) const {
    return steps_[row * microbatches_ + microbatch.index()];
  }

 private:
  std::size_t microbatches_;
  std::vector<std::int32_t> steps_;
};

// When the plan has a step begin and finish. Slots are shared out by these times; they never decide correctness.
struct PlannedTimes {
  std::int64_t start = 0;
  std::int64_t end = 0;  // computed, sent, arrived, added
};

struct RankTimes {
  std::vector<PlannedTimes> compute;  // like RankProgram::compute
  std::vector<PlannedTimes> comm;
  std::int64_t end_of(Wait step) const {
    return (step.on == Wait::On::compute ? compute : comm)[static_cast<std::size_t>(step.step)].end;
  }
};

struct Steps {
  Steps(const Layout& layout, const Routing& routing);

  std::vector<RankProgram> ranks;  // compute, comm and order are filled; ranges are empty
  std::vector<RankTimes> times;
  StepTable forward;       // [chunk]: compute step of F
  StepTable backward;      // [chunk]: compute step of B or I
  StepTable send_forward;  // [transfer]: comm steps
  StepTable receive_forward;
  StepTable send_backward;
  StepTable receive_backward;
  StepTable last_add;  // [holding]: the add that completes its sum
  StepTable zero;      // [holding]
};

// Walks the plan once. Adds stand where they become possible: after the arrival of the child's sum and after this
// rank's own contributions, children in the fixed order of Holding::children.
Steps make_steps(const Schedule& schedule, const Routing& routing, const Plan& plan);

}  // namespace plumb
