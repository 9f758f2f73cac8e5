// SPDX-License-Identifier: Apache-2.0
#include "train_lm/reference.hpp"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "plumb/kernels/counter_rng.hpp"

namespace plumb::lm {

ReferenceModel::ReferenceModel(const LmConfig& config) : config_(config) {
  validate(config);
  embedding_ = make_embedding(config);
  head_ = make_head(config);
  parameters_ = embedding_->parameters();
  for (int i = 0; i < config.num_sublayers; ++i) {
    sublayers_.push_back(make_sublayer(config, i));
    const auto& own = sublayers_.back()->parameters();
    parameters_.insert(parameters_.end(), own.begin(), own.end());
  }
  parameters_.insert(parameters_.end(), head_->parameters().begin(), head_->parameters().end());
  if (config.residual != Residual::standard) {
    for (int i = 0; i < config.num_sublayers; ++i) {
      aggregates_.push_back(make_aggregate(fmt::format("depth.{}", i)));
    }
    aggregates_.push_back(make_aggregate("depth.head"));
  }
}

ReferenceModel::Aggregate ReferenceModel::make_aggregate(const std::string& prefix) {
  Aggregate aggregate;
  aggregate.query = at::zeros({1, config_.width}, arithmetic_type(config_.dtype));
  aggregate.gain = at::ones({1, config_.width}, arithmetic_type(config_.dtype));
  if (config_.query_init == QueryInit::normal) {
    const CounterRng rng(config_.seed, prefix + ".query");
    const double stddev = depth_config(config_).query_stddev;
    for (std::int64_t i = 0; i < config_.width; ++i) {
      aggregate.query.select(0, 0).select(0, i).fill_(stddev * rng.normal(static_cast<std::uint64_t>(i)));
    }
  }
  for (auto& [name, value] : {std::pair(".query", aggregate.query), std::pair(".gain", aggregate.gain)}) {
    value.mutable_grad() = at::zeros_like(value);
    value.set_requires_grad(true);
    parameters_.push_back({prefix + name, value, false});
  }
  return aggregate;
}

at::Tensor ReferenceModel::stored(const at::Tensor& tensor) const {
  if (arithmetic_type(config_.dtype) == scalar_type(config_.dtype)) {
    return tensor;
  }
  const at::Tensor exact = tensor.detach();
  return tensor.add(exact.to(scalar_type(config_.dtype)).to(exact.scalar_type()).sub(exact));
}

at::Tensor ReferenceModel::mix(const std::vector<at::Tensor>& sources, const Aggregate& aggregate) const {
  const at::Tensor values = at::stack(sources);  // [sources, tokens, width]
  const at::Tensor inverse_rms = at::rsqrt(values.square().mean(-1, /*keepdim=*/true).add(config_.eps));
  const at::Tensor logits = values.mul(inverse_rms).mul(aggregate.query.mul(aggregate.gain)).sum(-1, /*keepdim=*/true);
  return stored(at::softmax(logits, 0).mul(values).sum(0));
}

at::Tensor ReferenceModel::standard_stream(const at::Tensor& ids) const {
  at::Tensor hidden = stored(embedding_->run(ids));
  for (const auto& sublayer : sublayers_) {
    hidden = stored(hidden.add(stored(sublayer->run(hidden))));
  }
  return hidden;
}

at::Tensor ReferenceModel::depth_stream(const at::Tensor& ids) const {
  std::vector<at::Tensor> sources = {stored(embedding_->run(ids))};
  at::Tensor partial;
  for (int i = 0; i < config_.num_sublayers; ++i) {
    std::vector<at::Tensor> seen = sources;
    if (partial.defined()) {
      seen.push_back(partial);
    }
    const auto index = static_cast<std::size_t>(i);
    const at::Tensor output = stored(sublayers_[index]->run(mix(seen, aggregates_[index])));
    partial = partial.defined() ? stored(partial.add(output)) : output;
    if ((i + 1) % config_.block_sublayers == 0 || i + 1 == config_.num_sublayers) {
      sources.push_back(std::exchange(partial, {}));
    }
  }
  return mix(sources, aggregates_.back());
}

at::Tensor ReferenceModel::logits(const at::Tensor& ids) const {
  return head_->run(config_.residual == Residual::standard ? standard_stream(ids) : depth_stream(ids));
}

double ReferenceModel::accumulate(std::span<const TokenBatch> microbatches) {
  double sum = 0;
  const double share = 1.0 / static_cast<double>(microbatches.size());
  for (const TokenBatch& batch : microbatches) {
    const at::Tensor loss = mean_loss(logits(token_tensor(batch.inputs)), token_tensor(batch.targets));
    torch::autograd::backward({loss}, {at::full_like(loss, share)});
    sum += loss.item<double>();
  }
  return sum * share;
}

double ReferenceModel::evaluate(std::span<const TokenBatch> microbatches) const {
  const at::NoGradGuard no_recording;
  double sum = 0;
  for (const TokenBatch& batch : microbatches) {
    sum += mean_loss(logits(token_tensor(batch.inputs)), token_tensor(batch.targets)).item<double>();
  }
  return sum / static_cast<double>(microbatches.size());
}

}  // namespace plumb::lm
