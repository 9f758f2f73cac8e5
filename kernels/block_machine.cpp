// SPDX-License-Identifier: Apache-2.0
#include "plumb/kernels/block_machine.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "chunk_run.hpp"
#include "operand_check.hpp"
#include "workspace.hpp"

namespace plumb {

using kernels_detail::Activations;
using kernels_detail::ChunkContext;
using kernels_detail::ChunkRun;
using kernels_detail::OperandCheck;

std::shared_ptr<DepthWorkspace> make_depth_workspace(int num_threads) {
  return std::make_shared<DepthWorkspace>(num_threads);
}

namespace {

// A forward whose backward, or whose second half of it, is still to come.
struct Tape {
  TapeId id;
  std::int64_t tokens = 0;
  bool awaits_weight = false;
  std::unique_ptr<Activations> kept;  // null before a recomputation and after the first half
};

}  // namespace

struct BlockMachine::State {
  ChunkContext context;
  std::shared_ptr<DepthWorkspace> workspace;
  bool recompute = false;
  std::vector<Tape> tapes;
  std::vector<std::unique_ptr<Activations>> pool;

  std::unique_ptr<Activations> take() {
    if (pool.empty()) {
      return std::make_unique<Activations>();
    }
    std::unique_ptr<Activations> kept = std::move(pool.back());
    pool.pop_back();
    return kept;
  }

  void give_back(std::unique_ptr<Activations> kept) {
    if (kept != nullptr) {
      pool.push_back(std::move(kept));
    }
  }

  std::vector<Tape>::iterator find(TapeId id) {
    return std::find_if(tapes.begin(), tapes.end(), [&](const Tape& tape) { return tape.id == id; });
  }

  void erase(std::vector<Tape>::iterator tape) {
    give_back(std::move(tape->kept));
    if (tape != tapes.end() - 1) {
      *tape = std::move(tapes.back());
    }
    tapes.pop_back();
  }

  Tape& require(TapeId id, bool awaits_weight, const OperandCheck& check) {
    const auto tape = find(id);
    if (tape == tapes.end()) {
      check.refuse("tape " + std::to_string(id.value) + " is not in flight");
    }
    if (tape->awaits_weight != awaits_weight) {
      check.refuse("tape " + std::to_string(id.value) +
                   (awaits_weight ? " has had no backward_input yet" : " awaits backward_weight only"));
    }
    return *tape;
  }

  // Everything that reads blocks; leaves the tape without activations.
  void run_backward(Tape& tape, const MachineBackward& args, bool split) {
    if (recompute) {
      tape.kept = take();
      ChunkRun(context, *workspace, tape.id, tape.tokens, tape.kept.get()).recompute(args);
    }
    ChunkRun(context, *workspace, tape.id, tape.tokens, tape.kept.get()).backward(args, split);
    give_back(std::move(tape.kept));
  }
};

BlockMachine::BlockMachine(const DepthConfig& config, const ChunkRange& chunk, std::vector<Sublayer*> sublayers,
                           DepthParameters& parameters, MachineOptions options)
    : state_(std::make_unique<State>()) {
  ChunkContext& context = state_->context;
  context.plan = kernels_detail::make_chunk_plan(config, chunk);
  context.config = config;
  context.range = chunk;
  context.parameters = &parameters;
  context.query_batch = options.query_batch;
  context.statistics = options.statistics;
  const OperandCheck check(context, "construction");
  if (sublayers.size() != static_cast<std::size_t>(chunk.count)) {
    check.refuse("one sublayer object each expected, " + std::to_string(chunk.count) + ", got " +
                 std::to_string(sublayers.size()));
  }
  if (std::find(sublayers.begin(), sublayers.end(), nullptr) != sublayers.end()) {
    check.refuse("a sublayer is null");
  }
  if (parameters.config() != config || parameters.chunk() != chunk) {
    check.refuse("the depth parameters were made for another configuration or chunk");
  }
  if (options.query_batch < 1) {
    check.refuse("query batch is " + std::to_string(options.query_batch) + "; legal: 1 or more");
  }
  if (context.plan.num_read >= cpu::kMaxSources) {
    check.refuse("it reads " + std::to_string(context.plan.num_read) + " blocks; legal: fewer than " +
                 std::to_string(cpu::kMaxSources));
  }
  const std::size_t num_aggregates = sublayers.size() + (context.plan.head ? 1 : 0);
  if (options.statistics != nullptr && options.statistics->rows().size() != num_aggregates) {
    check.refuse("the depth statistics were made for another chunk");
  }
  context.sublayers = std::move(sublayers);
  state_->recompute = options.recompute;
  state_->workspace = options.workspace != nullptr ? std::move(options.workspace) : make_depth_workspace();
}

BlockMachine::~BlockMachine() = default;
BlockMachine::BlockMachine(BlockMachine&&) noexcept = default;
BlockMachine& BlockMachine::operator=(BlockMachine&&) noexcept = default;

const DepthConfig& BlockMachine::config() const { return state_->context.config; }
const ChunkRange& BlockMachine::chunk() const { return state_->context.range; }
const ChunkDepth& BlockMachine::depth() const { return state_->context.plan.depth; }
std::size_t BlockMachine::num_tapes() const { return state_->tapes.size(); }

std::size_t BlockMachine::deferred_bytes() const {
  std::size_t sum = 0;
  for (const Sublayer* sublayer : state_->context.sublayers) {
    sum += sublayer->deferred_bytes();
  }
  return sum;
}

void BlockMachine::forward(TapeId tape, const MachineForward& args) {
  State& state = *state_;
  const OperandCheck check(state.context, "forward");
  check.forward(args);
  if (args.kind == ForwardKind::evaluate) {
    ChunkRun(state.context, *state.workspace, tape, args.tokens, nullptr).forward(args);
    return;
  }
  if (state.find(tape) != state.tapes.end()) {
    check.refuse("tape " + std::to_string(tape.value) + " is already in flight");
  }
  state.tapes.push_back({tape, args.tokens, false, state.recompute ? nullptr : state.take()});
  try {
    ChunkRun(state.context, *state.workspace, tape, args.tokens, state.tapes.back().kept.get()).forward(args);
  } catch (...) {
    drop(tape);
    throw;
  }
}

void BlockMachine::backward(TapeId tape, const MachineBackward& args) {
  const OperandCheck check(state_->context, "backward");
  check.backward(args);
  state_->run_backward(state_->require(tape, false, check), args, false);
  state_->erase(state_->find(tape));
}

void BlockMachine::backward_input(TapeId tape, const MachineBackward& args) {
  const OperandCheck check(state_->context, "backward_input");
  check.backward(args);
  Tape& own = state_->require(tape, false, check);
  state_->run_backward(own, args, true);
  own.awaits_weight = true;
}

void BlockMachine::backward_weight(TapeId tape) {
  const OperandCheck check(state_->context, "backward_weight");
  static_cast<void>(state_->require(tape, true, check));
  const std::vector<Sublayer*>& sublayers = state_->context.sublayers;
  for (auto own = sublayers.rbegin(); own != sublayers.rend(); ++own) {
    (*own)->backward_weight(tape);
  }
  state_->erase(state_->find(tape));
}

void BlockMachine::drop(TapeId tape) {
  const auto own = state_->find(tape);
  if (own == state_->tapes.end()) {
    return;
  }
  for (Sublayer* sublayer : state_->context.sublayers) {
    sublayer->drop(tape);
  }
  state_->erase(own);
}

}  // namespace plumb
