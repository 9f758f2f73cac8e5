// SPDX-License-Identifier: Apache-2.0
#include "plumb/runtime/standard_stage.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <utility>

#include "plumb/kernels/cpu_operators.hpp"
#include "tensor_buffer.hpp"

namespace plumb {

struct StandardStage::State {
  static TapeId tape(Microbatch microbatch) { return {microbatch.value}; }

  View value(TensorBuffer& buffer) const { return buffer.get(shape.tokens, shape.width, shape.storage); }
  View gradient(TensorBuffer& buffer) const {
    return buffer.get(shape.tokens, shape.width, gradient_storage(shape.storage));
  }

  void start(Microbatch microbatch, const ConstView& partial_in) {
    if (options.entry != nullptr) {
      options.entry->forward(microbatch, value(x));
    } else {
      copy_tensor(value(x), partial_in);
    }
  }

  void run(Microbatch microbatch, Keep keep) {
    for (Sublayer* sublayer : sublayers) {
      sublayer->forward(tape(microbatch), value(x), value(f), keep);
      cpu::add_output(problem, {value(x).data, value(f).data, value(x).data}, execution());
    }
  }

  // The kernels' addition is the fast one in every format.
  cpu::Execution execution() {
    const std::size_t size = cpu::workspace_bytes(problem, 1, 1, 1);
    workspace.resize(size + workspace_alignment);
    void* aligned = workspace.data();
    std::size_t space = workspace.size();
    std::align(workspace_alignment, size, aligned, space);
    return {{static_cast<std::byte*>(aligned), size}};
  }

  void backward(const StageBackward& args, bool split);

  static constexpr std::size_t workspace_alignment = 64;

  SlotShape shape;
  DepthProblem problem;
  std::vector<Sublayer*> sublayers;
  StandardStageOptions options;
  Microbatch largest{-1};
  TensorBuffer x;
  TensorBuffer f;
  TensorBuffer g;   // gradient of x
  TensorBuffer dh;  // of a sublayer's input
  std::vector<std::byte> workspace;
};

StandardStage::StandardStage(const SlotShape& shape, std::vector<Sublayer*> sublayers, StandardStageOptions options)
    : state_(std::make_unique<State>()) {
  if (std::find(sublayers.begin(), sublayers.end(), nullptr) != sublayers.end()) {
    throw std::invalid_argument("standard stage: a sublayer is null");
  }
  state_->shape = shape;
  state_->problem = {shape.tokens, shape.width, shape.storage};
  state_->sublayers = std::move(sublayers);
  state_->options = options;
}

StandardStage::~StandardStage() = default;

void StandardStage::forward(const StageForward& args) {
  State& state = *state_;
  state.largest = std::max(state.largest, args.microbatch);
  state.start(args.microbatch, args.partial_in);
  const bool keeps = args.mode == ForwardMode::train && !state.options.recompute;
  state.run(args.microbatch, keeps ? Keep::for_backward : Keep::nothing);
  if (args.partial_out.data != nullptr) copy_tensor(args.partial_out, state.value(state.x));
  if (state.options.exit != nullptr) state.options.exit->forward(args.microbatch, state.value(state.x), args.mode);
}

void StandardStage::State::backward(const StageBackward& args, bool split) {
  if (options.recompute) {
    start(args.microbatch, args.partial_in);
    run(args.microbatch, Keep::for_backward);
  }
  const View sum = gradient(g);
  if (options.exit != nullptr && split) {
    options.exit->backward_input(args.microbatch, sum);
  } else if (options.exit != nullptr) {
    options.exit->backward(args.microbatch, sum);
  } else {
    copy_tensor(sum, args.grad_partial_out);
  }
  for (auto own = sublayers.rbegin(); own != sublayers.rend(); ++own) {
    if (split) {
      (*own)->backward_input(tape(args.microbatch), sum, gradient(dh));
    } else {
      (*own)->backward(tape(args.microbatch), sum, gradient(dh));
    }
    add_tensor(sum, gradient(dh));
  }
  if (options.entry != nullptr) {
    options.entry->backward(args.microbatch, sum);
  } else {
    copy_tensor(args.grad_partial_in, sum);
  }
}

void StandardStage::backward(const StageBackward& args) { state_->backward(args, false); }

void StandardStage::backward_input(const StageBackward& args) { state_->backward(args, true); }

void StandardStage::backward_weight(Microbatch microbatch) {
  for (auto own = state_->sublayers.rbegin(); own != state_->sublayers.rend(); ++own) {
    (*own)->backward_weight(State::tape(microbatch));
  }
  if (state_->options.exit != nullptr) state_->options.exit->backward_weight(microbatch);
}

std::size_t StandardStage::deferred_bytes() const {
  std::size_t sum = state_->options.exit != nullptr ? state_->options.exit->deferred_bytes() : 0;
  for (const Sublayer* sublayer : state_->sublayers)
    sum += sublayer->deferred_bytes();
  return sum;
}

void StandardStage::abandon() noexcept {
  for (Microbatch m{0}; m <= state_->largest; m = m.next()) {
    for (Sublayer* sublayer : state_->sublayers)
      sublayer->drop(State::tape(m));
  }
  if (state_->options.exit != nullptr) state_->options.exit->abandon();
}

}  // namespace plumb
