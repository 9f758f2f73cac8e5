// SPDX-License-Identifier: Apache-2.0
//
// reference.hpp: the same model in one process, in plain torch: a stack of sources, a softmax over depth, autograd.
//
// It is what the pipeline is compared with, so it shares the layers and the initial parameters and nothing else: no
// kernel, no block machine, no program. It keeps every activation and is slow. Loss of a step: mean over the tokens of
// each microbatch, then the mean over microbatches, added in their order. Threads: one.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "train_lm/layers.hpp"
#include "train_lm/lm_config.hpp"
#include "train_lm/text.hpp"

namespace plumb::lm {

class ReferenceModel {
 public:
  // Throws InputError on an illegal config.
  explicit ReferenceModel(const LmConfig& config);

  // Ids [tokens] (int64) to logits [tokens, vocabulary].
  at::Tensor logits(const at::Tensor& ids) const;

  // Adds the gradients of one step's microbatches and returns the step's loss.
  double accumulate(std::span<const TokenBatch> microbatches);

  // Mean loss without gradients.
  double evaluate(std::span<const TokenBatch> microbatches) const;

  // Embedding, sublayers, head, then the depth parameters; each once, under the names the pipeline uses.
  const std::vector<Parameter>& parameters() const { return parameters_; }

 private:
  // One query and one key gain, both [1, width].
  struct Aggregate {
    at::Tensor query;
    at::Tensor gain;
  };

  Aggregate make_aggregate(const std::string& prefix);
  // The value that the storage format keeps of it, with the gradient of the tensor itself.
  at::Tensor stored(const at::Tensor& tensor) const;
  at::Tensor mix(const std::vector<at::Tensor>& sources, const Aggregate& aggregate) const;
  at::Tensor standard_stream(const at::Tensor& ids) const;
  at::Tensor depth_stream(const at::Tensor& ids) const;

  LmConfig config_;
  std::unique_ptr<Layer> embedding_;
  std::vector<std::unique_ptr<Layer>> sublayers_;
  std::unique_ptr<Layer> head_;
  std::vector<Aggregate> aggregates_;  // one per sublayer and one for the head; none under standard
  std::vector<Parameter> parameters_;
};

}  // namespace plumb::lm
