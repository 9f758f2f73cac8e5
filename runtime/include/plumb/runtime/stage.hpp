// SPDX-License-Identifier: Apache-2.0
//
// stage.hpp: what a host implements so that the executor can run one chunk of its model.
//
// A Stage computes one chunk for one microbatch on views of the runtime's slots. It is NOT a layer (see kernels'
// Sublayer and machine_stage.hpp for the usual way in) and it never moves data between ranks. One Stage object per
// chunk. Tensors are [tokens, width]: values in the storage format, gradients in gradient_storage(storage) (fp32; fp64
// under fp64). Lifetime: the slots behind a microbatch's views stay as they are until this chunk's own backward (or
// backward_input) of that microbatch returns; in evaluation until forward returns. The lists of views themselves live
// during the call only. backward_weight may read no slot: whatever it needs the Stage keeps. Threads: one call at a
// time, always from the thread that runs the executor, stages of one rank in program order.
#pragma once

#include <cstddef>
#include <span>

#include "plumb/kernels/storage.hpp"
#include "plumb/schedule/ids.hpp"

namespace plumb {

// evaluate: no backward will follow, keep nothing. train: one backward (or input and weight) of the microbatch follows.
enum class ForwardMode { train, evaluate };

// A closed block made by an earlier chunk (a source), or by this one (in the backward).
struct BlockValue {
  BlockId block;
  ConstView value;
};

// A block this chunk closes: every element must be written.
struct BlockOutput {
  BlockId block;
  View value;
};

// An accumulator of a block's gradient. first_touch: its content means nothing. A Stage that adds overwrites it
// instead.
struct BlockSum {
  BlockId block;
  View sum;
  bool first_touch = false;
};

// A null view (data == nullptr) means that the chunk has no such tensor. Blocks ascend. Under a standard residual there
// are no blocks, and the hidden state is the partial.
struct StageForward {
  Microbatch microbatch;
  ForwardMode mode = ForwardMode::train;
  std::span<const BlockValue> sources;  // b_0 .. of earlier chunks
  ConstView partial_in;                 // the block that the chunk before left open
  std::span<const BlockOutput> closed;  // written; chunk 0's list begins with the embedding b_0
  View partial_out;                     // written: the block this chunk leaves open
};

struct StageBackward {
  Microbatch microbatch;
  std::span<const BlockValue> sources;  // as in the forward
  ConstView partial_in;                 // as in the forward
  std::span<const BlockValue> closed;   // the values the forward wrote
  ConstView grad_partial_out;           // read
  // Per closed block the sum of what later chunks contributed; first_touch: nothing arrived, take it as zero. The Stage
  // may use it as its own accumulator; what it leaves there is not used any more.
  std::span<const BlockSum> grad_closed;
  // Per source: exactly one contribution is added by this call, or written when first_touch.
  std::span<const BlockSum> grad_sources;
  View grad_partial_in;  // written, every element
};

class Stage {
 public:
  Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  virtual ~Stage() = default;

  virtual void forward(const StageForward& args) = 0;

  // The whole backward of a forward with ForwardMode::train. Adds to the gradients of the chunk's own weights.
  virtual void backward(const StageBackward& args) = 0;

  // First half of a split backward (zero-bubble schedules): everything that reads or writes a slot. The gradients leave
  // for other ranks when it returns; nothing waits for the second half but the end of the step.
  virtual void backward_input(const StageBackward& args) { backward(args); }

  // Second half, any time later in the step: weight gradients, from what the Stage kept.
  virtual void backward_weight(Microbatch microbatch) { static_cast<void>(microbatch); }

  // Bytes kept now between the halves, over all microbatches. They are the host's own, no slots: a schedule that lets
  // weight gradients wait needs this memory on top of the program's slots.
  virtual std::size_t deferred_bytes() const { return 0; }

  // The step failed: forget every microbatch in flight. Their backward will not come.
  virtual void abandon() noexcept {}
};

}  // namespace plumb
