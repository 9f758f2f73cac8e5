// SPDX-License-Identifier: Apache-2.0
//
// lifetimes.hpp: from when to when each slot of a rank is occupied in a timeline, and by what.
//
// Followed along the rank's order: a slot becomes occupied by the first step that names it, and free again at the
// release record of the occupant's last user. What memory.hpp and memory_classes.hpp count.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

enum class Occupant : std::uint8_t {
  block,
  partial,
  gradient,         // a block's accumulator
  passing_gradient  // of a partial; of a block between arrival and addition
};

struct Lifetime {
  Occupant what = Occupant::block;
  SimTime since{0};
  SimTime filled{0};  // of a receive when it has arrived, else `since`
  SimTime used{0};    // when the last user that is no send had finished
  SimTime end{0};     // when all had
  friend bool operator==(const Lifetime&, const Lifetime&) = default;
};

// All of the rank, as they end in its order. Aborts where a slot is released that nothing occupied.
std::vector<Lifetime> slot_lifetimes(const Program& program, const Timeline& timeline, RankId rank);

// From the start of F to the end of the computation that frees it.
struct ActivationChange {
  SimTime at{0};
  ChunkId chunk;
  std::int32_t by = 0;  // +1 or -1
};
std::vector<ActivationChange> activation_changes(const Program& program, const Timeline& timeline, RankId rank);

}  // namespace plumb
