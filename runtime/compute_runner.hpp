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

  // Before a step.
  void reset();

  // The most that all stages together kept between I and W since reset().
  std::size_t peak_deferred_bytes() const { return peak_deferred_bytes_; }

 private:
  void forward(const Compute& compute, std::size_t index);
  void backward(const Compute& compute, std::size_t index);
  void note_deferred(const Compute& compute);

  const RankPlan& plan_;
  StepMemory& memory_;
  const StageTable& stages_;
  StepObserver* observer_;
  std::vector<BlockValue> sources_;
  std::vector<BlockValue> closed_values_;
  std::vector<BlockOutput> closed_;
  std::vector<BlockSum> grad_closed_;
  std::vector<BlockSum> grad_sources_;
  std::vector<std::size_t> deferred_bytes_;  // [chunk], as its stage said last
  std::size_t total_deferred_bytes_ = 0;
  std::size_t peak_deferred_bytes_ = 0;
};

}  // namespace plumb
