// SPDX-License-Identifier: Apache-2.0
//
// blocks.hpp: the building blocks of V-Half and V-Min.
//
// When, in a steady state with F = I = W = 1, the four F and I of a microbatch start on rank r. The next microbatch
// follows `period` later, so that a chunk's activation lives (time from F to I) / 6 microbatches long, and two of every
// six slots are left for W. The constants d keep the four starts of a rank apart modulo the period.
#pragma once

#include <array>
#include <cstdint>

namespace plumb::block {

constexpr int period = 6;

// F on the way down, F on the way back, I of the latter, I of the former.
using Offsets = std::array<std::int64_t, 4>;

constexpr Offsets half(std::int64_t pp, std::int64_t r) {
  const std::int64_t d = pp % 2 == 0 ? 3 : 0;
  return {2 * r, 3 * pp - r - 2, 3 * pp + d + 2 * r - 1, 6 * pp + d - r - 2};
}

constexpr Offsets third(std::int64_t pp, std::int64_t r) {
  const std::int64_t d = pp % 3 == 0 ? 2 : 0;
  return {r, 2 * pp - r - 1, 2 * pp + d + r, 4 * pp + d - r - 1};
}

// Activations a rank may keep: half and a third of the 2P of 1F1B, and two more. With P mod 3 = 2 the third is rounded
// up: below that no block of this period exists for P = 5 and 8 (all delays were tried), every microbatch loses time.
constexpr int half_limit(int pp) { return pp + 2; }
constexpr int third_limit(int pp) { return 2 * pp / 3 + (pp % 3 == 2 ? 3 : 2); }

}  // namespace plumb::block
