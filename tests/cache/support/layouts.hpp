// SPDX-License-Identifier: Apache-2.0
//
// layouts.hpp (tests): layouts and depth maps for property tests, the same on every machine.
#pragma once

#include <random>
#include <vector>

#include "plumb/cache/policy.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/layout.hpp"

namespace plumb::test {

inline constexpr Policy block_policies[] = {Policy::naive, Policy::relay, Policy::cached, Policy::direct};

class Dice {
 public:
  explicit Dice(std::uint32_t seed) : engine_(seed) {}
  // Uniform enough in [low, high]; std::uniform_int_distribution differs between libraries.
  int roll(int low, int high) { return low + static_cast<int>(engine_() % static_cast<std::uint32_t>(high - low + 1)); }

 private:
  std::mt19937 engine_;
};

// Cuts anywhere: uneven, inside blocks, equal neighbours (empty chunks), several blocks in one chunk.
std::vector<int> random_cuts(Dice& dice, int sublayers, int chunks);

// A depth map of up to `max_sublayers` with random S and random cuts.
DepthMap random_depth(Dice& dice, int chunks, int max_sublayers);

}  // namespace plumb::test
