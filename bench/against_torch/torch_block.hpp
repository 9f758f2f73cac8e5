// SPDX-License-Identifier: Apache-2.0
//
// torch_block.hpp: the block of block_data.hpp in torch, as its users write it, differentiated by its autograd.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "block_data.hpp"
#include "steps.hpp"

namespace plumb::bench {

enum class TorchForm {
  // Each sublayer stacks all it reads, normalises, scores, mixes: the formula as it is printed.
  per_sublayer,
  // Sources are stacked and normalised once for the block, all queries score them in one product and mix them in
  // another; each sublayer then joins its mixture with the partial sum.
  batched,
  // The same, but logits instead of rows are divided by the norms: no normalised copy is ever made.
  batched_scaled,
};
std::string_view to_string(TorchForm form);

class TorchBlock {
 public:
  // With the first `tokens` rows of `data`, which outlives this; torch reads them where they are.
  TorchBlock(const BlockData& data, std::int64_t tokens, TorchForm form);
  ~TorchBlock();
  TorchBlock(const TorchBlock&) = delete;
  TorchBlock& operator=(const TorchBlock&) = delete;

  // One repetition; the forward alone records no graph. `results` may be null.
  void forward(Steps& steps, BlockResults* results);
  void train(Steps& steps, BlockResults* results);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One thread for torch and its BLAS.
void use_one_thread();

std::string torch_version();

}  // namespace plumb::bench
