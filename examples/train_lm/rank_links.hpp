// SPDX-License-Identifier: Apache-2.0
//
// rank_links.hpp: what connects one rank with the others.
#pragma once

#include "plumb/comm/control.hpp"
#include "plumb/comm/transport.hpp"
#include "plumb/schedule/ids.hpp"

namespace plumb::lm {

// Both pointers are null when the rank is the only one; else they outlive whoever uses them.
struct RankLinks {
  RankId rank;
  Transport* transport = nullptr;
  ControlPlane* control = nullptr;
};

}  // namespace plumb::lm
