// SPDX-License-Identifier: Apache-2.0
//
// gradient_check.hpp: are the gradients that the ranks hold those of the plain torch model?
//
// Collective; rank 0 gets the answer. Gradients travel over the control plane in pieces, as doubles.
#pragma once

#include <vector>

#include "plumb/comm/control.hpp"
#include "train_lm/layers.hpp"

namespace plumb::lm {

// Over all parameters of all ranks: the largest of max |a-b| / max |b|, b from `reference` (empty on other ranks, where
// the result is 0); where max |b| is 0, the largest |a|. Throws std::logic_error when the names of all ranks together
// are not exactly those of the reference.
double compare_gradients(ControlPlane* control, const std::vector<Parameter>& mine,
                         const std::vector<Parameter>& reference);

}  // namespace plumb::lm
