// SPDX-License-Identifier: Apache-2.0
//
// model_step.hpp: what depth attention adds to a training step of the language model of train_lm, in one process.
//
// The same layers run between an ordinary residual stream and between depth attention, step by step in turn, each with
// its own optimizer, on one thread. A pass is cut where a layer begins and ends, so what lies between the layers (the
// residual stream, embedding and head) is told apart from them. Times are processor time, the fastest of each segment.
#pragma once

#include "train_lm/lm_config.hpp"

namespace plumb::bench {

// Seconds of one pass.
struct PassTime {
  double layers = 0;
  double between = 0;
  double total() const { return layers + between; }
};

struct StepTime {
  PassTime forward;
  PassTime backward;
  double update = 0;
  double total() const { return forward.total() + backward.total() + update; }
};

struct ModelTimes {
  StepTime standard;
  StepTime depth;
};

// `config`: of the model with depth attention; its residual must not be standard. Throws InputError when it is illegal.
ModelTimes measure_model(const lm::LmConfig& config, int repetitions);

}  // namespace plumb::bench
