// SPDX-License-Identifier: Apache-2.0
//
// training_state.hpp: which tensors make up the state of training, under which names they are saved.
//
// Per parameter its value, under its own name, and AdamW's moments as "<name>/first_moment" and "<name>/second_moment".
// The tensors share memory with the optimizer's, so loading into them restores it. Threads: none.
#pragma once

#include <vector>

#include "train_lm/adamw.hpp"
#include "train_lm/checkpoint.hpp"

namespace plumb::lm {

std::vector<NamedTensor> state_tensors(const AdamW& optimizer);

// Takes parameters, moments and step count from a checkpoint. Throws InputError with everything as it was.
void restore(AdamW& optimizer, const std::string& folder, const CheckpointInfo& info);

}  // namespace plumb::lm
