// SPDX-License-Identifier: Apache-2.0
//
// integer_model.hpp (tests): a model whose every number is a small integer, so that sums are exact in any order.
//
// Sublayer l: h = sum of alpha(l, n) b_n over the closed blocks + beta(l) partial, f_j = w_lj h_(j+1). The embedding
// and the loss are linear too. reference() evaluates it as one process would, for all sublayers at once, with code of
// its own.
#pragma once

#include <cstdint>
#include <vector>

#include "plumb/runtime/block_store.hpp"
#include "plumb/schedule/depth_map.hpp"

namespace plumb::test {

class IntegerModel {
 public:
  IntegerModel(const DepthMap& depth, std::int64_t tokens, std::int64_t width, std::uint32_t seed = 1);

  int sublayers() const { return sublayers_; }
  int block_sublayers() const { return block_; }
  int num_blocks() const { return num_blocks_; }
  bool standard() const { return standard_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t width() const { return width_; }

  double alpha(int sublayer, int block) const { return small(1, sublayer, block); }
  double beta(int sublayer) const { return small(2, sublayer, 0); }
  double weight(int sublayer, std::int64_t j) const { return small(3, sublayer, static_cast<int>(j)); }
  double embedding(std::int64_t j) const { return small(4, static_cast<int>(j), 0); }
  double input(Microbatch microbatch, std::int64_t token, std::int64_t j) const;
  // The loss of a microbatch is the sum over tokens, elements and blocks of this times the block's value.
  double loss_weight(Microbatch microbatch, int block, std::int64_t j) const;

  struct Gradients {
    std::vector<std::vector<double>> weights;  // [sublayer][width]
    std::vector<double> embedding;             // [width]
    std::vector<double> losses;                // [microbatch]
    double largest = 0;                        // of all intermediate magnitudes
    friend bool operator==(const Gradients& a, const Gradients& b) {
      return a.weights == b.weights && a.embedding == b.embedding && a.losses == b.losses;
    }
  };
  Gradients reference(int microbatches) const;

 private:
  double small(std::uint32_t kind, int a, int b) const;  // -1, 0 or 1
  void run(Microbatch microbatch, Gradients& gradients) const;
  void run_standard(Microbatch microbatch, Gradients& gradients) const;

  int sublayers_;
  int block_;
  int num_blocks_;
  bool standard_;
  std::int64_t tokens_;
  std::int64_t width_;
  std::uint32_t seed_;
};

}  // namespace plumb::test
