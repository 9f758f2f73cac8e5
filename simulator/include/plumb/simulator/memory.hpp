// SPDX-License-Identifier: Apache-2.0
//
// memory.hpp: what is resident on a rank over time, counted from the lifetimes of slots in a timeline.
//
// A slot is occupied from the step that fills it until its last user has finished. A received value lives from the
// posting of its receive: when its slot is free, but no earlier than `post_ahead` computations before the place in
// which the message was planned. Blocks, which the cache keeps, are counted apart from partials, which every pipeline
// has (they are the chunks' inputs); values apart from gradients, which differ in bytes. Chunk activations live from
// the start of a forward to the end of the backward that frees them (W where it is split).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

struct Resident {
  std::int32_t block_units = 0;             // values of blocks, the embedding among them
  std::int32_t partial_units = 0;           // values of open partials
  std::int32_t gradient_units = 0;          // accumulators of block gradients
  std::int32_t passing_gradient_units = 0;  // gradients of partials, and block sums between arrival and addition
  std::int32_t activation_chunks = 0;

  std::int32_t value_slots() const { return block_units + partial_units; }
  std::int32_t gradient_slots() const { return gradient_units + passing_gradient_units; }
  friend bool operator==(const Resident&, const Resident&) = default;
};

// All counts, to go through them.
inline constexpr std::array resident_counts{&Resident::block_units, &Resident::partial_units, &Resident::gradient_units,
                                            &Resident::passing_gradient_units, &Resident::activation_chunks};

struct MemoryPoint {
  SimTime at{0};
  Resident resident;  // from `at` until the next point
};

// Ascending in time, one point per instant at which anything changes; begins at 0 and ends with nothing resident. What
// dies at an instant is gone before what is born then. O(n log n) in the rank's steps.
std::vector<MemoryPoint> memory_curve(const Program& program, const Timeline& timeline, RankId rank);

struct MemoryPeak {
  Resident each;                 // the peak of each count by itself
  std::int32_t value_slots = 0;  // peaks of the two sums
  std::int32_t gradient_slots = 0;
  std::int64_t bytes = 0;  // the largest sum of values and gradients, activations left out
  SimTime at{0};           // when that was reached first
  Resident live;           // and what was live then
};

MemoryPeak memory_peak(const std::vector<MemoryPoint>& curve, const UnitBytes& bytes);

}  // namespace plumb
