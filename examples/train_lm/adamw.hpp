// SPDX-License-Identifier: Apache-2.0
//
// adamw.hpp: libtorch's AdamW over named parameters, with a state that can be saved and restored by name.
//
// Betas 0.9, 0.95; weight decay 0.1 on matrices only. The learning rate rises linearly over the first steps, so that
// the normalised first updates do no harm; the step count is the only memory of it. Nothing crosses ranks: each owns
// the parameters of its chunks. It is NOT the reference of anything: pipeline and reference both use it. Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "train_lm/layers.hpp"

namespace plumb::lm {

class AdamW {
 public:
  static constexpr std::int64_t kWarmupSteps = 5;

  AdamW(std::vector<Parameter> parameters, double learning_rate);
  ~AdamW();
  AdamW(AdamW&&) noexcept;
  AdamW& operator=(AdamW&&) noexcept;

  void step();
  void zero_gradients();

  // Steps taken so far.
  std::int64_t num_steps() const { return num_steps_; }

  // First and second moments, in the order of the parameters; they exist from the start.
  struct Moments {
    at::Tensor first;
    at::Tensor second;
  };
  const std::vector<Moments>& moments() const { return moments_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  // After the moments were overwritten in place: the step they belong to.
  void resume(std::int64_t num_steps);

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::vector<Parameter> parameters_;
  std::vector<Moments> moments_;
  double learning_rate_;
  std::int64_t num_steps_ = 0;
};

}  // namespace plumb::lm
