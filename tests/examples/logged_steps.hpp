// SPDX-License-Identifier: Apache-2.0
//
// logged_steps.hpp: reads the log of a run of a model of three decoder layers as `plumb sim --against` does.
#pragma once

#include <fstream>
#include <string>

#include "plumb/simulator/against.hpp"
#include "train_lm/train_plan.hpp"

namespace plumb::lm::test {

inline MeasuredLog read_log_of_three_layers(const std::string& file, int pp, int vp) {
  TrainOptions options;
  options.text = "given";
  options.shared.layers = 3;
  options.shared.hidden = 16;
  options.heads = 2;
  options.shared.pp = pp;
  options.shared.vp = vp;
  const TrainPlan plan = make_train_plan(options, "");
  std::ifstream in(file);
  return read_event_log(in, file, plan.chosen());
}

}  // namespace plumb::lm::test
