// SPDX-License-Identifier: Apache-2.0
//
// our_block.hpp: the block of block_data.hpp through the block machine, as a host would run it, on one thread.
#pragma once

#include <cstddef>
#include <memory>

#include "block_data.hpp"
#include "steps.hpp"

namespace plumb::bench {

class OurBlock {
 public:
  // With the first `tokens` rows of `data`, which outlives this. Makes the places of all results, and no more.
  OurBlock(const BlockData& data, std::int64_t tokens, bool with_backward);
  ~OurBlock();
  OurBlock(const OurBlock&) = delete;
  OurBlock& operator=(const OurBlock&) = delete;

  // One repetition. What the sublayers themselves do (copies of given rows) is not timed. `results` may be null.
  void forward(Steps& steps, BlockResults* results);
  // REQUIRES: made with a backward.
  void train(Steps& steps, BlockResults* results);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Bytes that malloc has given out and not got back. A pass that keeps its buffers shows here what it needs.
std::size_t allocated_bytes();

}  // namespace plumb::bench
