// SPDX-License-Identifier: Apache-2.0
//
// edit.hpp (tests): changes to a lowered program that keep its numbering sound, to make bad programs from good ones.
#pragma once

#include <optional>
#include <vector>

#include "plumb/cache/program.hpp"

namespace plumb::test {

// The rank's steps in another order; steps that are left out vanish, and so do the waits for them. Lists are
// renumbered.
void reorder(RankProgram& rank, const std::vector<StepRef>& order);

// Leaves one step out.
void drop(RankProgram& rank, StepRef step);

// Moves every receive to just before the first step that waits for it and every send to just behind the last it waits
// for: what each rank would do on its own, without a common order.
void order_by_own_use(RankProgram& rank);

// The first communication step of that kind at or after `from`.
std::optional<std::int32_t> find(const RankProgram& rank, CommKind kind, std::int32_t from = 0);

}  // namespace plumb::test
