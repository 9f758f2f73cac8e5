// SPDX-License-Identifier: Apache-2.0
//
// report_run.hpp: what a run prints at its end, and whether the answer is yes.
//
// The table compares three independent counts of the bytes of a step: a closed expression over the cuts, the sum over a
// simulated step's messages, and what the transports counted. The JSON object is documented in README.md.
#pragma once

#include <string>

#include "train_lm/train_plan.hpp"
#include "train_lm/trainer.hpp"

namespace plumb::lm {

std::string result_table(const TrainPlan& plan, const TrainResult& result);
std::string result_json(const TrainPlan& plan, const TrainResult& result);

// Bounds of --check. A loss is compared in the first step relative to itself, later absolutely.
struct CheckLimits {
  double first_loss = 0;
  double loss = 0;
  double gradient = 0;
};
CheckLimits check_limits(Storage dtype);

// Empty if every count is equal and the reference agrees; else one line, "protocol: ..." or "numeric: ...".
std::string verdict(const TrainPlan& plan, const TrainResult& result);

}  // namespace plumb::lm
