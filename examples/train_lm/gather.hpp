// SPDX-License-Identifier: Apache-2.0
//
// gather.hpp: the bytes of all ranks, brought to rank 0 between two steps.
//
// A collective call over the control plane, in pieces, so that no text is too long for it. With a null control plane
// there is one rank.
#pragma once

#include <string>
#include <vector>

#include "plumb/comm/control.hpp"

namespace plumb::lm {

// [rank] on rank 0; elsewhere empty.
std::vector<std::string> gather(ControlPlane* control, std::string mine);

}  // namespace plumb::lm
