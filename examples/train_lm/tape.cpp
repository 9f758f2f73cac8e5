// SPDX-License-Identifier: Apache-2.0
#include "train_lm/tape.hpp"

#include <cstddef>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/autograd.h>

namespace plumb::lm {

at::Tensor copy_in(ConstView view) {
  // from_blob wants a pointer it could write to; the copy is made before anybody could.
  void* const data = const_cast<void*>(view.data);
  return at::from_blob(data, {view.tokens, view.width}, scalar_type(view.storage))
      .to(arithmetic_type(view.storage), /*non_blocking=*/false, /*copy=*/true);
}

void copy_out(const at::Tensor& tensor, View view) {
  at::from_blob(view.data, {view.tokens, view.width}, scalar_type(view.storage)).copy_(tensor.detach());
}

// Takes both factors out of their graphs and starts a new one at the product.
class Tape::Recorder final : public MatrixProduct {
 public:
  explicit Recorder(std::vector<Product>& products) : products_(products) {}
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& weight) override {
    at::Tensor y = at::linear(x.detach(), weight.detach());
    y.set_requires_grad(true);
    products_.push_back({x, y, weight, {}});
    return y;
  }

 private:
  std::vector<Product>& products_;
};

Tape Tape::record(const TorchFunction& function, at::Tensor input) {
  const at::AutoGradMode recording(true);
  Tape tape;
  tape.leaf_ = std::move(input);
  if (tape.leaf_.is_floating_point()) {
    tape.leaf_.set_requires_grad(true);
  }
  Recorder recorder(tape.products_);
  tape.output_ = function(tape.leaf_, recorder);
  return tape;
}

at::Tensor Tape::backward(const at::Tensor& grad_output) {
  at::Tensor grad_input = backward_input(grad_output);
  backward_weight();
  return grad_input;
}

at::Tensor Tape::backward_input(const at::Tensor& grad_output) {
  torch::autograd::backward({output_}, {grad_output});
  output_.reset();
  // Deepest first: everything behind a product has contributed to its dy.
  for (auto product = products_.rbegin(); product != products_.rend(); ++product) {
    product->dy = std::exchange(product->y, {}).grad();
    const at::Tensor dx = at::mm(product->dy, product->weight.detach());
    torch::autograd::backward({product->x}, {dx});
    product->x = product->weight.requires_grad() ? product->x.detach() : at::Tensor();
  }
  std::erase_if(products_, [](const Product& product) { return !product.x.defined(); });
  return std::exchange(leaf_, {}).grad();
}

void Tape::backward_weight() {
  const at::NoGradGuard no_recording;
  for (auto product = products_.rbegin(); product != products_.rend(); ++product) {
    product->weight.mutable_grad().addmm_(product->dy.t(), product->x);
  }
  products_.clear();
}

std::size_t Tape::deferred_bytes() const {
  std::size_t sum = 0;
  for (const Product& product : products_) {
    sum += product.dy.defined() ? product.x.nbytes() + product.dy.nbytes() : 0;
  }
  return sum;
}

at::Tensor evaluate(const Layer& layer, const at::Tensor& input) {
  const at::NoGradGuard no_recording;
  return layer.run(input);
}

void TorchSublayer::forward(TapeId tape, ConstView h, View f, Keep keep) {
  if (keep == Keep::nothing) {
    copy_out(evaluate(*layer_, copy_in(h)), f);
    return;
  }
  const auto run = [this](const at::Tensor& input, MatrixProduct& product) { return layer_->run(input, product); };
  Tape recorded = Tape::record(run, copy_in(h));
  copy_out(recorded.output(), f);
  tapes_.insert_or_assign(tape, std::move(recorded));
}

void TorchSublayer::backward(TapeId tape, ConstView df, View dh) {
  copy_out(tapes_.at(tape).backward(copy_in(df)), dh);
  tapes_.erase(tape);
}

void TorchSublayer::backward_input(TapeId tape, ConstView df, View dh) {
  Tape& own = tapes_.at(tape);
  copy_out(own.backward_input(copy_in(df)), dh);
  deferred_bytes_ += own.deferred_bytes();
}

void TorchSublayer::backward_weight(TapeId tape) {
  Tape& own = tapes_.at(tape);
  deferred_bytes_ -= own.deferred_bytes();
  own.backward_weight();
  tapes_.erase(tape);
}

void TorchSublayer::drop(TapeId tape) {
  const auto own = tapes_.find(tape);
  if (own != tapes_.end()) {
    deferred_bytes_ -= own->second.deferred_bytes();
    tapes_.erase(own);
  }
}

}  // namespace plumb::lm
