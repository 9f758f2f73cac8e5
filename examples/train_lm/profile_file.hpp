// SPDX-License-Identifier: Apache-2.0
//
// profile_file.hpp: the file of --profile-out: what each action of each chunk took at least, for plumb sim --profile.
//
// docs/profile.md is the format. Of the steps under the chosen routing policy. Written whole with the last step, by the
// rank that speaks; a run that ends early leaves none. Threads: one.
#pragma once

#include <string>

#include "plumb/simulator/timeline.hpp"
#include "train_lm/train_plan.hpp"
#include "train_lm/trainer.hpp"

namespace plumb::lm {

class ProfileFile {
 public:
  // `plan` outlives this.
  ProfileFile(std::string file, const TrainPlan& plan);

  // Throws cli::EnvironmentError when the file cannot be written.
  void add(const StepEvent& event);

 private:
  std::string file_;
  const TrainPlan& plan_;
  Timeline least_;  // every action as if it began at 0: the shortest time of each
  int num_steps_ = 0;
};

}  // namespace plumb::lm
