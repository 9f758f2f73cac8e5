// SPDX-License-Identifier: Apache-2.0
//
// run_log.hpp: the file of --log: what happened in each step, as an event log, and one line of figures per step.
//
// docs/event-log.md is the format. An event log is of one program, so the steps that try another routing policy have
// only their line of figures. Written by the rank that speaks, between steps. Threads: one.
#pragma once

#include <fstream>
#include <string>

#include "train_lm/train_plan.hpp"
#include "train_lm/trainer.hpp"

namespace plumb::lm {

class RunLog {
 public:
  // Starts the file anew. Throws cli::EnvironmentError when it cannot be opened. `plan` outlives this.
  RunLog(const std::string& file, const TrainPlan& plan);

  // Throws cli::EnvironmentError when the file cannot be written to.
  void write(const StepEvent& event);

 private:
  const TrainPlan& plan_;
  std::string file_;
  std::ofstream out_;
};

}  // namespace plumb::lm
