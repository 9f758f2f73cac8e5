// SPDX-License-Identifier: Apache-2.0
#include "train_lm/adamw.hpp"

#include <algorithm>
#include <utility>

#include <ATen/ops/zeros_like.h>
#include <c10/util/string_utils.h>
#include <torch/optim/adamw.h>

namespace plumb::lm {

struct AdamW::State {
  torch::optim::AdamW optimizer;
};

namespace {

torch::optim::AdamWParamState& state_of(torch::optim::AdamW& optimizer, const at::Tensor& value) {
  auto& slot = optimizer.state()[c10::guts::to_string(value.unsafeGetTensorImpl())];
  return static_cast<torch::optim::AdamWParamState&>(*slot);
}

torch::optim::AdamW make_optimizer(const std::vector<Parameter>& parameters, double learning_rate) {
  std::vector<at::Tensor> matrices;
  std::vector<at::Tensor> vectors;
  for (const Parameter& parameter : parameters) {
    (parameter.decay ? matrices : vectors).push_back(parameter.value);
  }
  const auto options = torch::optim::AdamWOptions(learning_rate).betas({0.9, 0.95});
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(
      matrices, std::make_unique<torch::optim::AdamWOptions>(torch::optim::AdamWOptions(options).weight_decay(0.1)));
  groups.emplace_back(
      vectors, std::make_unique<torch::optim::AdamWOptions>(torch::optim::AdamWOptions(options).weight_decay(0.0)));
  return torch::optim::AdamW(std::move(groups), options);
}

}  // namespace

AdamW::AdamW(std::vector<Parameter> parameters, double learning_rate)
    : state_(new State{make_optimizer(parameters, learning_rate)}),
      parameters_(std::move(parameters)),
      learning_rate_(learning_rate) {
  // libtorch makes a parameter's state at its first step; made here it can be restored before any.
  for (const Parameter& parameter : parameters_) {
    auto state = std::make_unique<torch::optim::AdamWParamState>();
    state->step(0);
    state->exp_avg(at::zeros_like(parameter.value).detach());
    state->exp_avg_sq(at::zeros_like(parameter.value).detach());
    moments_.push_back({state->exp_avg(), state->exp_avg_sq()});
    state_->optimizer.state()[c10::guts::to_string(parameter.value.unsafeGetTensorImpl())] = std::move(state);
  }
}

AdamW::~AdamW() = default;
AdamW::AdamW(AdamW&&) noexcept = default;
AdamW& AdamW::operator=(AdamW&&) noexcept = default;

void AdamW::step() {
  ++num_steps_;
  const double warm = std::min(1.0, static_cast<double>(num_steps_) / static_cast<double>(kWarmupSteps));
  for (auto& group : state_->optimizer.param_groups()) {
    group.options().set_lr(learning_rate_ * warm);
  }
  state_->optimizer.step();
}

void AdamW::zero_gradients() {
  for (Parameter& parameter : parameters_) {
    parameter.value.mutable_grad().zero_();
  }
}

void AdamW::resume(std::int64_t num_steps) {
  num_steps_ = num_steps;
  for (const Parameter& parameter : parameters_) {
    state_of(state_->optimizer, parameter.value).step(num_steps);
  }
}

}  // namespace plumb::lm
