// SPDX-License-Identifier: Apache-2.0
#include "train_lm/tape.hpp"

#include <cstddef>
#include <cstring>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/autograd.h>

namespace plumb::lm {

at::Tensor copy_in(ConstView view) {
  // from_blob wants a pointer it could write to; the clone is made before anybody could.
  void* const data = const_cast<void*>(view.data);
  return at::from_blob(data, {view.tokens, view.width}, scalar_type(view.storage)).clone();
}

void copy_out(const at::Tensor& tensor, View view) {
  const at::Tensor source = tensor.contiguous();
  std::memcpy(view.data, source.data_ptr(), static_cast<std::size_t>(view.num_elements()) * source.element_size());
}

Tape Tape::record(const TorchFunction& function, at::Tensor input) {
  const at::AutoGradMode recording(true);
  Tape tape;
  tape.leaf_ = std::move(input);
  if (tape.leaf_.is_floating_point()) {
    tape.leaf_.set_requires_grad(true);
  }
  tape.output_ = function(tape.leaf_);
  return tape;
}

at::Tensor Tape::backward(const at::Tensor& grad_output) {
  torch::autograd::backward({output_}, {grad_output});
  output_.reset();
  return std::exchange(leaf_, {}).grad();
}

at::Tensor Tape::backward_input(at::Tensor grad_output) {
  grad_output_ = std::move(grad_output);
  return torch::autograd::grad({output_}, {leaf_}, {grad_output_}, /*retain_graph=*/true).front();
}

void Tape::backward_weight(const std::vector<Parameter>& parameters) {
  std::vector<at::Tensor> values;
  for (const Parameter& parameter : parameters) {
    if (parameter.value.requires_grad()) {
      values.push_back(parameter.value);
    }
  }
  const auto gradients = torch::autograd::grad({output_}, values, {grad_output_});
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i].mutable_grad().add_(gradients[i]);
  }
  *this = {};
}

at::Tensor evaluate(const TorchFunction& function, const at::Tensor& input) {
  const at::NoGradGuard no_recording;
  return function(input);
}

void TorchSublayer::forward(TapeId tape, ConstView h, View f, Keep keep) {
  const auto run = [this](const at::Tensor& input) { return layer_->run(input); };
  if (keep == Keep::nothing) {
    copy_out(evaluate(run, copy_in(h)), f);
    return;
  }
  Tape recorded = Tape::record(run, copy_in(h));
  copy_out(recorded.output(), f);
  tapes_.insert_or_assign(tape, std::move(recorded));
}

void TorchSublayer::backward(TapeId tape, ConstView df, View dh) {
  copy_out(tapes_.at(tape).backward(copy_in(df)), dh);
  tapes_.erase(tape);
}

void TorchSublayer::backward_input(TapeId tape, ConstView df, View dh) {
  copy_out(tapes_.at(tape).backward_input(copy_in(df)), dh);
}

void TorchSublayer::backward_weight(TapeId tape) {
  tapes_.at(tape).backward_weight(layer_->parameters());
  tapes_.erase(tape);
}

}  // namespace plumb::lm
