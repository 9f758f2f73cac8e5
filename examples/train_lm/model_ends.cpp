// SPDX-License-Identifier: Apache-2.0
#include "train_lm/model_ends.hpp"

#include <utility>

#include <ATen/ops/full_like.h>

namespace plumb::lm {

EmbeddingEntry::EmbeddingEntry(const LmConfig& config, const StepBatches& batches)
    : batches_(&batches), layer_(make_embedding(config)) {}

at::Tensor EmbeddingEntry::ids(Microbatch microbatch) const {
  return token_tensor(batches_->microbatches.at(microbatch.index()).inputs);
}

void EmbeddingEntry::forward(Microbatch microbatch, View b0) { copy_out(evaluate(*layer_, ids(microbatch)), b0); }

void EmbeddingEntry::backward(Microbatch microbatch, ConstView grad_b0) {
  const auto run = [this](const at::Tensor& input, MatrixProduct& product) { return layer_->run(input, product); };
  Tape::record(run, ids(microbatch)).backward(copy_in(grad_b0));
}

LossExit::LossExit(const LmConfig& config, const StepBatches& batches)
    : batches_(&batches), layer_(make_head(config)) {}

void LossExit::forward(Microbatch microbatch, ConstView h, ForwardMode mode) {
  const at::Tensor targets = token_tensor(batches_->microbatches.at(microbatch.index()).targets);
  losses_.resize(batches_->microbatches.size());
  if (mode == ForwardMode::evaluate) {
    evaluated_logits_ = evaluate(*layer_, copy_in(h));
    losses_[microbatch.index()] = mean_loss(evaluated_logits_, targets).item<double>();
    return;
  }
  const auto loss = [this, &targets](const at::Tensor& input, MatrixProduct& product) {
    return mean_loss(layer_->run(input, product), targets);
  };
  Tape tape = Tape::record(loss, copy_in(h));
  losses_[microbatch.index()] = tape.output().item<double>();
  tapes_.insert_or_assign(microbatch, std::move(tape));
}

void LossExit::backward(Microbatch microbatch, View grad_h) {
  backward_input(microbatch, grad_h);
  backward_weight(microbatch);
}

void LossExit::backward_input(Microbatch microbatch, View grad_h) {
  Tape& tape = tapes_.at(microbatch);
  const double share = 1.0 / static_cast<double>(batches_->microbatches.size());
  copy_out(tape.backward_input(at::full_like(tape.output(), share)), grad_h);
  deferred_bytes_ += tape.deferred_bytes();
}

void LossExit::backward_weight(Microbatch microbatch) {
  Tape& tape = tapes_.at(microbatch);
  deferred_bytes_ -= tape.deferred_bytes();
  tape.backward_weight();
  tapes_.erase(microbatch);
}

void LossExit::abandon() noexcept {
  tapes_.clear();
  deferred_bytes_ = 0;
}

double LossExit::step_loss() const {
  double sum = 0;
  for (const double loss : losses_) {
    sum += loss;
  }
  return sum * (1.0 / static_cast<double>(losses_.size()));
}

}  // namespace plumb::lm
