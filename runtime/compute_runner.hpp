// SPDX-License-Identifier: Apache-2.0
//
// compute_runner.hpp (private): runs one compute step: checks its slots, builds the views, calls the Stage, counts.
//
// Not thread-safe: the compute worker's own.
#pragma once

#include <vector>

#include "plumb/runtime/executor.hpp"
#include "rank_plan.hpp"
#include "step_memory.hpp"

namespace plumb {

class ComputeRunner {
 public:
  // The stages of the plan's rank must be there: InputError names the first chunk without one.
  ComputeRunner(const RankPlan& plan, StepMemory& memory, const StageTable& stages, StepObserver* observer);

  // All that the step waits for has happened. Throws what the Stage throws, SlotError, ContributionError.
  void run(std::size_t compute);

 private:
  void forward(const Compute& compute, std::size_t index);
  void backward(const Compute& compute, std::size_t index);

  const RankPlan& plan_;
  StepMemory& memory_;
  const StageTable& stages_;
  StepObserver* observer_;
  std::vector<BlockValue> sources_;
  std::vector<BlockValue> closed_values_;
  std::vector<BlockOutput> closed_;
  std::vector<BlockSum> grad_closed_;
  std::vector<BlockSum> grad_sources_;
};

}  // namespace plumb
