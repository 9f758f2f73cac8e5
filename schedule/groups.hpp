// SPDX-License-Identifier: Apache-2.0
//
// groups.hpp: microbatches dealt in groups, each group through every virtual stage in turn.
#pragma once

#include <vector>

#include "plumb/schedule/named.hpp"

namespace plumb {

// The k-th forward of a rank: which of its chunks, which microbatch. The k-th backward takes the same turn with the
// virtual stages counted from the deepest.
struct Turn {
  VirtualStage stage;
  Microbatch microbatch;
};

// M*V turns; the last group may be shorter.
std::vector<Turn> turns_of(int vp, int microbatches, int group);

// The rule of interleaved() in generators.hpp; V = 1 takes any group >= 1. Throws InputError with the nearest legal
// group and M.
void require_group(ScheduleKind kind, const Layout& layout, int group);

}  // namespace plumb
