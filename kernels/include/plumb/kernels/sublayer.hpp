// SPDX-License-Identifier: Apache-2.0
// sublayer.hpp: what a host implements so that the block machine can run its layers: one attention or one MLP.
//
// The host's autograd only ever sees a leaf h and an output f, never a slot of the runtime. Every view handed over is
// valid DURING THE CALL ONLY: copy h into a leaf of your own, copy your output into f. (A buffer that is overwritten
// between forward and backward gives a wrong gradient without any error in an autograd library.)
// A Sublayer is NOT a residual block: f excludes the skip connection; the norm in front of the layer is inside.
// Shapes: [tokens, width]; h and f in the storage format, df and dh in `gradient_storage` (fp32; fp64 under fp64).
// Ownership: the host owns sublayers and their weights and gradients. Threads: one call at a time per sublayer.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

#include "plumb/kernels/storage.hpp"

namespace plumb {

/// Names one in-flight forward of a chunk, chosen by the caller (any value not in flight on that machine). The host
/// keys what its backward needs by it; also key dropout by it, so that a recomputed forward draws the same numbers.
struct TapeId {
  std::int64_t value = 0;
  auto operator<=>(const TapeId&) const = default;
};

/// Whether a forward must leave behind what its backward needs. `nothing`: evaluation, or the first of the two
/// forwards under recomputation; the host should then record no autograd graph at all.
enum class Keep { nothing, for_backward };

class Sublayer {
 public:
  virtual ~Sublayer() = default;

  /// f = sublayer(h). Must write every element of f. With Keep::for_backward the host keeps its state under `tape`
  /// until backward, backward_weight or drop; the same tape is never kept twice at once.
  virtual void forward(TapeId tape, ConstView h, View f, Keep keep) = 0;

  /// dh = (df/dh)^T df, overwriting every element of dh, and adds to the gradients of the sublayer's own weights.
  /// Consumes the state kept under `tape`. A frozen sublayer still returns dh.
  virtual void backward(TapeId tape, ConstView df, View dh) = 0;

  /// First half of a split backward (zero-bubble schedules): dh, and whatever weight gradients are too small to wait.
  /// The state of the forward ends here but for what backward_weight needs; df is copied if it is part of that.
  /// Worth postponing are the weight gradients of matrix products: each needs its input and its output's gradient, and
  /// nothing else. Default: the whole backward.
  virtual void backward_input(TapeId tape, ConstView df, View dh) { backward(tape, df, dh); }

  /// Second half: adds the rest to the weight gradients and consumes the state. Default: nothing is left to do.
  virtual void backward_weight(TapeId tape) { static_cast<void>(tape); }

  /// Bytes kept now between backward_input and backward_weight, over all tapes. Default: none.
  virtual std::size_t deferred_bytes() const { return 0; }

  /// Forgets the state kept under `tape`, if any, because its backward will never run. Never throws on an unknown tape.
  virtual void drop(TapeId tape) = 0;
};

}  // namespace plumb
