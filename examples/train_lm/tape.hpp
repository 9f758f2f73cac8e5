// SPDX-License-Identifier: Apache-2.0
//
// tape.hpp: one recorded forward of a torch function between memory that torch does not own.
//
// The input is copied into a leaf, the output stays with its autograd graph until backward. Autograd therefore never
// sees a slot of the runtime, whose bytes change between the two. A Tape is used once: forward, then one whole or one
// split backward. Threads: graphs of different ranks are independent; one Tape belongs to one thread at a time.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "plumb/kernels/storage.hpp"
#include "plumb/kernels/sublayer.hpp"
#include "train_lm/layers.hpp"

namespace plumb::lm {

using TorchFunction = std::function<at::Tensor(const at::Tensor&)>;

// A fresh tensor with the elements of `view`, and the way back. Shapes [tokens, width].
at::Tensor copy_in(ConstView view);
void copy_out(const at::Tensor& tensor, View view);

class Tape {
 public:
  // Records function(leaf), leaf = a copy of `input` or none at all where input is undefined (an embedding).
  static Tape record(const TorchFunction& function, at::Tensor input);

  const at::Tensor& output() const { return output_; }

  // Adds to the gradients of all parameters on the graph and returns the leaf's gradient.
  at::Tensor backward(const at::Tensor& grad_output);

  // The same in two halves with the same bits: first the leaf's gradient, later the parameters'.
  at::Tensor backward_input(at::Tensor grad_output);
  void backward_weight(const std::vector<Parameter>& parameters);

 private:
  at::Tensor leaf_;
  at::Tensor output_;
  at::Tensor grad_output_;
};

// The output of function(input) without recording anything.
at::Tensor evaluate(const TorchFunction& function, const at::Tensor& input);

// A torch layer as the block machine wants it.
class TorchSublayer final : public Sublayer {
 public:
  explicit TorchSublayer(const Layer& layer) : layer_(&layer) {}

  void forward(TapeId tape, ConstView h, View f, Keep keep) override;
  void backward(TapeId tape, ConstView df, View dh) override;
  void backward_input(TapeId tape, ConstView df, View dh) override;
  void backward_weight(TapeId tape) override;
  void drop(TapeId tape) override { tapes_.erase(tape); }

 private:
  const Layer* layer_;
  std::map<TapeId, Tape> tapes_;
};

}  // namespace plumb::lm
