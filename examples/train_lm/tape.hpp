// SPDX-License-Identifier: Apache-2.0
//
// tape.hpp: one recorded forward of a torch function between memory that torch does not own.
//
// The input is copied into a leaf, the output stays with its autograd graph until backward. Autograd therefore never
// sees a slot of the runtime, whose bytes change between the two. The graph is cut at every product with a weight
// matrix: what lies between two products is differentiated by torch, each product by hand, so that its weight gradient
// can wait. Between the halves of a split backward a Tape keeps (x, dy) of each product, tensors of its own, and no
// graph. Used once: forward, then one whole or one split backward, with the same bits. Threads: Tapes of different
// ranks are independent; one Tape belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "plumb/kernels/storage.hpp"
#include "plumb/kernels/sublayer.hpp"
#include "train_lm/layers.hpp"

namespace plumb::lm {

using TorchFunction = std::function<at::Tensor(const at::Tensor&, MatrixProduct&)>;

// A fresh tensor with the elements of `view` in the arithmetic's format, and the way back, rounded once to nearest even
// where the storage is shorter. Shapes [tokens, width].
at::Tensor copy_in(ConstView view);
void copy_out(const at::Tensor& tensor, View view);

class Tape {
 public:
  // Records function(leaf, product), leaf = a copy of `input`, or without gradient where input is integer (an
  // embedding).
  static Tape record(const TorchFunction& function, at::Tensor input);

  const at::Tensor& output() const { return output_; }

  // Adds to the gradients of all parameters and returns the leaf's gradient.
  at::Tensor backward(const at::Tensor& grad_output);

  // The same in two halves. The first returns the leaf's gradient, adds to the gradients of all parameters but the
  // matrices, and frees the graph. The second adds dy^T x to the gradient of each matrix that is not frozen.
  at::Tensor backward_input(const at::Tensor& grad_output);
  void backward_weight();

  // Bytes kept for backward_weight.
  std::size_t deferred_bytes() const;

 private:
  // y = x weight^T; the graph that made x ends there, the one behind begins at y.
  struct Product {
    at::Tensor x;
    at::Tensor y;  // until backward_input
    at::Tensor weight;
    at::Tensor dy;  // from backward_input on
  };
  class Recorder;

  at::Tensor leaf_;
  at::Tensor output_;
  std::vector<Product> products_;  // in the order of the forward
};

// The layer's output without recording anything.
at::Tensor evaluate(const Layer& layer, const at::Tensor& input);

// A torch layer as the block machine wants it.
class TorchSublayer final : public Sublayer {
 public:
  explicit TorchSublayer(const Layer& layer) : layer_(&layer) {}

  void forward(TapeId tape, ConstView h, View f, Keep keep) override;
  void backward(TapeId tape, ConstView df, View dh) override;
  void backward_input(TapeId tape, ConstView df, View dh) override;
  void backward_weight(TapeId tape) override;
  std::size_t deferred_bytes() const override { return deferred_bytes_; }
  void drop(TapeId tape) override;

 private:
  const Layer* layer_;
  std::map<TapeId, Tape> tapes_;
  std::size_t deferred_bytes_ = 0;
};

}  // namespace plumb::lm
