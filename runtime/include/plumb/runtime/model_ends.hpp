// SPDX-License-Identifier: Apache-2.0
//
// model_ends.hpp: the two ends of a model that belong to the host: what makes b_0, and what turns the last value into a
// loss.
//
// The views are valid during the call only: an implementation that needs them later copies. Each belongs to one chunk
// (the first, the last) and is called like its Stage: one call at a time. It is NOT a sublayer: it counts in no depth.
#pragma once

#include <cstddef>

#include "plumb/kernels/storage.hpp"
#include "plumb/runtime/stage.hpp"
#include "plumb/schedule/ids.hpp"

namespace plumb {

class ModelEntry {
 public:
  virtual ~ModelEntry() = default;
  // Writes every element of b_0 [tokens, width]. May be called again for the same microbatch before its backward
  // (recomputation), and must then write the same bits.
  virtual void forward(Microbatch microbatch, View b0) = 0;
  // The gradient of b_0, complete. A frozen entry ignores it.
  virtual void backward(Microbatch microbatch, ConstView grad_b0) = 0;
};

class ModelExit {
 public:
  virtual ~ModelExit() = default;
  // h [tokens, width]: the head's input. Under train a backward of the same microbatch follows, later and not always
  // next.
  virtual void forward(Microbatch microbatch, ConstView h, ForwardMode mode) = 0;
  // The whole backward: writes every element of the loss's gradient with respect to h, adds to the gradients of the
  // exit's own weights.
  virtual void backward(Microbatch microbatch, View grad_h) = 0;
  // The same in two halves: grad_h first, the rest later from what was kept. Default: the first half is the whole.
  virtual void backward_input(Microbatch microbatch, View grad_h) { backward(microbatch, grad_h); }
  virtual void backward_weight(Microbatch microbatch) { static_cast<void>(microbatch); }
  // Bytes kept now between the halves.
  virtual std::size_t deferred_bytes() const { return 0; }
  // The step failed: no backward will come.
  virtual void abandon() noexcept {}
};

}  // namespace plumb
