// SPDX-License-Identifier: Apache-2.0
//
// memory.hpp: what is resident on a rank over time, counted from the lifetimes of slots in a timeline.
//
// A slot is occupied from the step that fills it until its last user has finished. A received value lives from the
// posting of its receive; a receive is posted when its slot is free, but no earlier than `post_ahead` computations
// before the one in whose place the message was planned. Values and gradients are counted apart: they differ in bytes.
// Chunk activations are counted from the start of a forward to the end of the backward that frees them (W where it is
// split). Slots that nothing occupies are not counted.
#pragma once

#include <cstdint>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

struct Resident {
  std::int32_t value_units = 0;
  std::int32_t gradient_units = 0;
  std::int32_t activation_chunks = 0;
  friend bool operator==(const Resident&, const Resident&) = default;
};

struct MemoryPoint {
  SimTime at{0};
  Resident resident;  // from `at` until the next point
};

// Ascending in time, one point per instant at which anything changes; begins at 0 and ends with nothing resident. What
// dies at an instant is gone before what is born then. O(n log n) in the rank's steps.
std::vector<MemoryPoint> memory_curve(const Program& program, const Timeline& timeline, RankId rank);

struct MemoryPeak {
  std::int32_t value_units = 0;  // each peak by itself
  std::int32_t gradient_units = 0;
  std::int32_t activation_chunks = 0;
  std::int64_t bytes = 0;  // the largest sum of values and gradients, activations left out
  SimTime at{0};           // when that was reached first
  Resident live;           // and what was live then
};

MemoryPeak memory_peak(const std::vector<MemoryPoint>& curve, const UnitBytes& bytes);

}  // namespace plumb
