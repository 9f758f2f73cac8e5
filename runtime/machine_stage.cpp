// SPDX-License-Identifier: Apache-2.0
#include "plumb/runtime/machine_stage.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "tensor_buffer.hpp"

namespace plumb {

struct MachineStage::State {
  State(const DepthConfig& config, const ChunkRange& chunk, std::vector<Sublayer*> sublayers,
        DepthParameters& parameters, MachineStageOptions the_options)
      : options(std::move(the_options)),
        machine(config, chunk, std::move(sublayers), parameters,
                {.recompute = options.recompute,
                 .query_batch = 6,
                 .workspace = options.workspace,
                 .statistics = options.statistics}),
        width(config.width),
        storage(config.storage),
        has_aggregate(chunk.has_head && config.head_aggregate) {
    if (chunk.has_head != (options.exit != nullptr)) {
      throw std::invalid_argument("machine stage: the chunk with the head, and only that one, needs an exit");
    }
  }

  static TapeId tape(Microbatch microbatch) { return {microbatch.value}; }

  // On the first chunk b_0 stands first among the closed blocks; for the machine it is a source.
  std::size_t num_made() const { return options.entry != nullptr ? 1 : 0; }

  void collect_values(const StageBackward& args);
  void collect_sums(const StageBackward& args);
  void backward_input(const StageBackward& args, bool split);
  ConstView head_of(const StageForward& args);
  void spread_head(const StageBackward& args);
  void spread_to_sources(const StageBackward& args);

  MachineStageOptions options;
  BlockMachine machine;
  std::int64_t width;
  Storage storage;
  bool has_aggregate;
  std::int64_t tokens = 0;
  Microbatch largest{-1};  // of all seen, to know what abandon() may find

  std::vector<const void*> sources;
  std::vector<void*> outputs;
  std::vector<const void*> closed;
  std::vector<BlockGradient> grad_closed;
  std::vector<BlockGradient> grad_sources;
  TensorBuffer head;
  TensorBuffer grad_head;
};

MachineStage::MachineStage(const DepthConfig& config, const ChunkRange& chunk, std::vector<Sublayer*> sublayers,
                           DepthParameters& parameters, MachineStageOptions options)
    : state_(std::make_unique<State>(config, chunk, std::move(sublayers), parameters, std::move(options))) {}

MachineStage::~MachineStage() = default;

std::size_t MachineStage::num_in_flight() const { return state_->machine.num_tapes(); }

void MachineStage::forward(const StageForward& args) {
  State& state = *state_;
  const std::size_t num_made = state.num_made();
  state.sources.clear();
  state.outputs.clear();
  for (const BlockValue& source : args.sources)
    state.sources.push_back(source.value.data);
  for (const BlockOutput& output : args.closed)
    state.outputs.push_back(output.value.data);
  // A chunk may hold nothing at all; whatever tensor it has tells the number of tokens.
  state.tokens = !args.closed.empty()              ? args.closed[0].value.tokens
                 : !args.sources.empty()           ? args.sources[0].value.tokens
                 : args.partial_in.data != nullptr ? args.partial_in.tokens
                                                   : state.tokens;
  if (num_made == 1) {
    state.options.entry->forward(args.microbatch, args.closed[0].value);
    state.sources.push_back(args.closed[0].value.data);
  }
  state.largest = std::max(state.largest, args.microbatch);
  MachineForward machine_args;
  machine_args.tokens = std::max<std::int64_t>(state.tokens, 1);
  machine_args.sources = state.sources;
  machine_args.partial_in = args.partial_in.data;
  machine_args.closed = std::span(state.outputs).subspan(num_made);
  machine_args.partial_out = args.partial_out.data;
  machine_args.kind = args.mode == ForwardMode::train ? ForwardKind::train : ForwardKind::evaluate;
  if (state.has_aggregate) machine_args.head = state.head.get(state.tokens, state.width, state.storage).data;
  state.machine.forward(State::tape(args.microbatch), machine_args);
  if (state.options.exit != nullptr) state.options.exit->forward(args.microbatch, state.head_of(args), args.mode);
}

// What the exit reads: the aggregate, or the plain sum of all blocks.
ConstView MachineStage::State::head_of(const StageForward& args) {
  const View sum = head.get(tokens, width, storage);
  if (has_aggregate) return sum;
  clear_tensor(sum);
  for (const BlockValue& source : args.sources)
    add_tensor(sum, source.value);
  for (const BlockOutput& output : args.closed)
    add_tensor(sum, output.value);
  return sum;
}

void MachineStage::backward(const StageBackward& args) { state_->backward_input(args, false); }

void MachineStage::backward_input(const StageBackward& args) { state_->backward_input(args, true); }

void MachineStage::State::collect_values(const StageBackward& args) {
  sources.clear();
  closed.clear();
  for (const BlockValue& source : args.sources)
    sources.push_back(source.value.data);
  for (const BlockValue& value : args.closed)
    closed.push_back(value.value.data);
  if (num_made() == 1) sources.push_back(args.closed[0].value.data);
}

void MachineStage::State::collect_sums(const StageBackward& args) {
  grad_closed.clear();
  grad_sources.clear();
  for (const BlockSum& sum : args.grad_closed)
    grad_closed.push_back({sum.sum.data, sum.first_touch});
  for (const BlockSum& sum : args.grad_sources)
    grad_sources.push_back({sum.sum.data, sum.first_touch});
  if (num_made() == 1) grad_sources.push_back(grad_closed.front());
}

void MachineStage::State::backward_input(const StageBackward& args, bool split) {
  collect_values(args);
  collect_sums(args);
  MachineBackward machine_args;
  if (options.exit != nullptr) {
    const View gradient = grad_head.get(tokens, width, gradient_storage(storage));
    if (split) {
      options.exit->backward_input(args.microbatch, gradient);
    } else {
      options.exit->backward(args.microbatch, gradient);
    }
    if (has_aggregate) {
      machine_args.grad_head = gradient.data;
    } else {
      spread_head(args);
    }
  }
  machine_args.sources = sources;
  machine_args.partial_in = args.partial_in.data;
  machine_args.closed = std::span(closed).subspan(num_made());
  machine_args.grad_partial_out = args.grad_partial_out.data;
  machine_args.grad_closed = std::span(grad_closed).subspan(num_made());
  machine_args.grad_sources = grad_sources;
  machine_args.grad_partial_in = args.grad_partial_in.data;
  if (split) {
    machine.backward_input(tape(args.microbatch), machine_args);
  } else {
    machine.backward(tape(args.microbatch), machine_args);
  }
  if (options.exit != nullptr && !has_aggregate) spread_to_sources(args);
  if (options.entry == nullptr) return;
  // An empty first chunk leaves b_0's sum as it came.
  const BlockSum& b0 = args.grad_closed[0];
  if (b0.first_touch && machine.chunk().count == 0 && options.exit == nullptr) clear_tensor(b0.sum);
  options.entry->backward(args.microbatch, b0.sum);
}

// Without an aggregate the head's gradient reaches every block as it is. Blocks made here must have it before the
// machine runs, as part of the sum from outside; sources get it afterwards, on top of the chunk's own contribution.
void MachineStage::State::spread_head(const StageBackward& args) {
  const ConstView gradient = grad_head.get(tokens, width, gradient_storage(storage));
  for (std::size_t i = num_made(); i < args.grad_closed.size(); ++i) {
    const View sum = args.grad_closed[i].sum;
    (args.grad_closed[i].first_touch ? copy_tensor : add_tensor)(sum, gradient);
    grad_closed[i].first_touch = false;
  }
}

void MachineStage::State::spread_to_sources(const StageBackward& args) {
  const ConstView gradient = grad_head.get(tokens, width, gradient_storage(storage));
  for (const BlockSum& sum : args.grad_sources)
    add_tensor(sum.sum, gradient);
  if (num_made() == 1) add_tensor(args.grad_closed[0].sum, gradient);
}

void MachineStage::backward_weight(Microbatch microbatch) {
  state_->machine.backward_weight(State::tape(microbatch));
  if (state_->options.exit != nullptr) state_->options.exit->backward_weight(microbatch);
}

std::size_t MachineStage::deferred_bytes() const {
  const ModelExit* const exit = state_->options.exit;
  return state_->machine.deferred_bytes() + (exit != nullptr ? exit->deferred_bytes() : 0);
}

void MachineStage::abandon() noexcept {
  for (Microbatch m{0}; m <= state_->largest; m = m.next())
    state_->machine.drop(State::tape(m));
  if (state_->options.exit != nullptr) state_->options.exit->abandon();
}

}  // namespace plumb
