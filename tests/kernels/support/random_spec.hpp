// SPDX-License-Identifier: Apache-2.0
// random_spec.hpp: random models and cuts for property tests, reproducible from a trial number.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/support/chunked_model.hpp"
#include "plumb/kernels/counter_rng.hpp"

namespace plumb::testing {

/// Uniform integers, one after the other.
class Dice {
 public:
  explicit Dice(std::uint64_t trial) : rng_(trial, "dice") {}
  int between(int low, int high) {
    return low + static_cast<int>(rng_.bits(next_++) % static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  CounterRng rng_;
  std::uint64_t next_ = 0;
};

/// Any non-decreasing cuts of L sublayers: uneven, inside blocks, empty chunks at the front, middle and end.
inline std::vector<int> random_cuts(Dice& dice, int num_sublayers) {
  std::vector<int> cuts(static_cast<std::size_t>(dice.between(1, 6)));
  for (int& cut : cuts) {
    cut = dice.between(0, num_sublayers);
  }
  cuts.back() = num_sublayers;
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

/// Block and Full, N = 1, S = 1, short last blocks, with and without a head, queries far from zero.
inline ModelSpec random_spec(Dice& dice) {
  ModelSpec spec;
  DepthConfig& config = spec.config;
  config.num_sublayers = dice.between(1, 10);
  config.mode = dice.between(0, 2) == 0 ? DepthMode::full : DepthMode::block;
  config.block_length = config.mode == DepthMode::full ? 1 : dice.between(1, config.num_sublayers);
  config.schedule_length = dice.between(1, 4);
  config.width = dice.between(1, 9);
  config.head_aggregate = dice.between(0, 3) != 0;
  config.query_init = QueryInit::normal;
  config.query_stddev = 0.7;
  config.seed = static_cast<std::uint64_t>(dice.between(0, 1000));
  spec.kind = dice.between(0, 1) == 0 ? LayerKind::linear : LayerKind::tanh;
  spec.tokens = dice.between(1, 5);
  if (dice.between(0, 9) == 0) {  // more than one run of tokens in the query gradients
    spec.tokens = dice.between(257, 600);
    config.width = dice.between(1, 3);
  }
  spec.query_batch = dice.between(1, 4);
  spec.cuts = {config.num_sublayers};
  return spec;
}

/// For messages of failing trials.
inline std::string describe(const ModelSpec& spec) {
  std::string text =
      std::string(spec.config.mode == DepthMode::full ? "full" : "block") +
      " L=" + std::to_string(spec.config.num_sublayers) + " S=" + std::to_string(spec.config.block_length) +
      " G=" + std::to_string(spec.config.schedule_length) + " d=" + std::to_string(spec.config.width) +
      " T=" + std::to_string(spec.tokens) + " head=" + std::to_string(spec.config.head_aggregate) + " cuts";
  for (const int cut : spec.cuts) {
    text += " " + std::to_string(cut);
  }
  return text;
}

}  // namespace plumb::testing
