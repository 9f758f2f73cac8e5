// SPDX-License-Identifier: Apache-2.0
//
// model_ends.hpp: the two ends of the model in torch: bytes become b_0, and the head's input becomes a loss.
//
// Both look up the microbatch in the step's batches, which the trainer swaps between steps. A backward's seed is 1/M,
// so that the gradients of a step add up to those of the mean loss. Ownership: the batches belong to the rank's model.
// Threads: as Stage.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "plumb/runtime/model_ends.hpp"
#include "train_lm/layers.hpp"
#include "train_lm/tape.hpp"
#include "train_lm/text.hpp"

namespace plumb::lm {

// The microbatches of the step that runs; every chunk of a rank looks here.
struct StepBatches {
  std::vector<TokenBatch> microbatches;
};

// Keeps nothing between forward and backward: a lookup is cheap enough to be recorded when its gradient comes.
class EmbeddingEntry final : public ModelEntry {
 public:
  EmbeddingEntry(const LmConfig& config, const StepBatches& batches);

  void forward(Microbatch microbatch, View b0) override;
  void backward(Microbatch microbatch, ConstView grad_b0) override;
  const std::vector<Parameter>& parameters() const { return layer_->parameters(); }

 private:
  at::Tensor ids(Microbatch microbatch) const;

  const StepBatches* batches_;
  std::unique_ptr<Layer> layer_;
};

// The head's matrix product and its norm are recorded; with a split backward the product's weight gradient waits.
class LossExit final : public ModelExit {
 public:
  LossExit(const LmConfig& config, const StepBatches& batches);

  void forward(Microbatch microbatch, ConstView h, ForwardMode mode) override;
  void backward(Microbatch microbatch, View grad_h) override;
  void backward_input(Microbatch microbatch, View grad_h) override;
  void backward_weight(Microbatch microbatch) override;
  std::size_t deferred_bytes() const override { return deferred_bytes_; }
  void abandon() noexcept override;
  const std::vector<Parameter>& parameters() const { return layer_->parameters(); }

  // Logits of the microbatch evaluated last, [tokens, vocabulary]; undefined while none was.
  const at::Tensor& evaluated_logits() const { return evaluated_logits_; }

  // Mean over the microbatches of the last step, added in their order.
  double step_loss() const;

 private:
  const StepBatches* batches_;
  std::unique_ptr<Layer> layer_;
  std::map<Microbatch, Tape> tapes_;
  std::size_t deferred_bytes_ = 0;
  std::vector<double> losses_;
  at::Tensor evaluated_logits_;
};

}  // namespace plumb::lm
