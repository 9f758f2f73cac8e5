// SPDX-License-Identifier: Apache-2.0
//
// launch.hpp: starts the ranks of a run: as threads of this process, or as this process's part of an MPI job.
//
// Every rank computes with its own threads only (set_compute_threads first). The result is the same on all ranks. If a
// rank fails the others are told and end too; what is thrown is the cause, not its echo on the other ranks.
#pragma once

#include "train_lm/text.hpp"
#include "train_lm/train_plan.hpp"
#include "train_lm/trainer.hpp"

namespace plumb::lm {

// Torch and the BLAS behind it use this many threads per rank, whichever thread asks.
void set_compute_threads(int threads);

// P threads of this process.
TrainResult train_inproc(const TrainPlan& plan, const Text& text, StepListener* listener);

}  // namespace plumb::lm
