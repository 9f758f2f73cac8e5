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

void EmbeddingEntry::forward(Microbatch microbatch, View b0) {
  copy_out(evaluate([this](const at::Tensor& input) { return layer_->run(input); }, ids(microbatch)), b0);
}

void EmbeddingEntry::backward(Microbatch microbatch, ConstView grad_b0) {
  Tape::record([this](const at::Tensor& input) { return layer_->run(input); }, ids(microbatch))
      .backward(copy_in(grad_b0));
}

LossExit::LossExit(const LmConfig& config, const StepBatches& batches)
    : batches_(&batches), layer_(make_head(config)) {}

void LossExit::forward(Microbatch microbatch, ConstView h, ForwardMode mode) {
  const at::Tensor targets = token_tensor(batches_->microbatches.at(microbatch.index()).targets);
  losses_.resize(batches_->microbatches.size());
  if (mode == ForwardMode::evaluate) {
    const auto logits = [this](const at::Tensor& input) { return layer_->run(input); };
    evaluated_logits_ = evaluate(logits, copy_in(h));
    losses_[microbatch.index()] = mean_loss(evaluated_logits_, targets).item<double>();
    return;
  }
  const auto loss = [this, &targets](const at::Tensor& input) { return mean_loss(layer_->run(input), targets); };
  Tape tape = Tape::record(loss, copy_in(h));
  losses_[microbatch.index()] = tape.output().item<double>();
  tapes_.insert_or_assign(microbatch, std::move(tape));
}

void LossExit::backward(Microbatch microbatch, View grad_h) {
  Tape& tape = tapes_.at(microbatch);
  const double share = 1.0 / static_cast<double>(batches_->microbatches.size());
  copy_out(tape.backward(at::full_like(tape.output(), share)), grad_h);
  tapes_.erase(microbatch);
}

double LossExit::step_loss() const {
  double sum = 0;
  for (const double loss : losses_) {
    sum += loss;
  }
  return sum * (1.0 / static_cast<double>(losses_.size()));
}

}  // namespace plumb::lm
