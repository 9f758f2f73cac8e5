// SPDX-License-Identifier: Apache-2.0
//
// stamp.hpp (private): what a rehearsal writes into slots instead of activations and gradients, and what must be there.
//
// A value carries a Stamp: who wrote it, for which microbatch, in which step. A gradient carries small integers, so
// that sums are exact in any order: one contribution is a number drawn from (step, microbatch, reader, block), and the
// sum that reaches a block's closer must be the sum over all its readers, whichever way it came. Both are written and
// read at places 4 KiB apart and at the end, not in between: slots in pieces are found, and memory is not what is
// rehearsed. Pure functions on views. Threads: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plumb/kernels/storage.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/ids.hpp"

namespace plumb {

struct Stamp {
  std::int32_t step = 0;
  std::int32_t microbatch = 0;
  std::int32_t chunk = 0;   // that wrote it
  std::int32_t block = -1;  // -1: the partial behind the chunk
  friend bool operator==(const Stamp&, const Stamp&) = default;
};

// The shortest value that holds a stamp.
inline constexpr std::int64_t least_unit_bytes = sizeof(Stamp);

// "(step 3, microbatch 1, chunk 2, block 4)".
std::string to_string(const Stamp& stamp);

void write_stamp(View value, const Stamp& stamp);

// What stands where something else than `expected` should; nothing if all is well.
std::optional<Stamp> wrong_stamp(ConstView value, const Stamp& expected);

// A number and how many contributions it is made of; place p of a sum holds number + count * (p mod 3).
struct GradientSum {
  std::int64_t number = 0;
  std::int64_t count = 0;
  friend bool operator==(const GradientSum&, const GradientSum&) = default;
};

// What the chunk of the stamp contributes to the gradient of the block of the stamp (or, -1, to that of the partial
// before the chunk).
GradientSum contribution(const Stamp& of);

// What all chunks behind the closer of `block` contribute together.
GradientSum all_contributions(const DepthMap& depth, std::int32_t step, Microbatch microbatch, BlockId block);

void write_gradient(View sum, const GradientSum& gradient);
void add_gradient(View sum, const GradientSum& gradient);

struct WrongGradient {
  std::int64_t place = 0;  // element
  double found = 0;
  double expected = 0;
};
std::optional<WrongGradient> wrong_gradient(ConstView sum, const GradientSum& expected);

}  // namespace plumb
