// SPDX-License-Identifier: Apache-2.0
#include "plumb/runtime/interpreter.hpp"

#include <optional>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "compute_runner.hpp"
#include "local_exchange.hpp"
#include "message_event.hpp"
#include "plumb/runtime/run_error.hpp"
#include "poison.hpp"
#include "step_words.hpp"

namespace plumb {
namespace {

struct InterpretedRank {
  InterpretedRank(RankPlan made, const StageTable& stages, LocalExchange& exchange, StepObserver* observer)
      : plan(std::move(made)),
        memory(plan, store),
        runner(plan, memory, stages, observer),
        port(plan.rank, exchange, observer),
        comm(plan, memory, port) {}

  RankPlan plan;
  BlockStore store;
  StepMemory memory;
  ComputeRunner runner;
  LocalPort port;
  CommState comm;
  std::size_t num_computed = 0;
};

struct InterpretedProgram {
  explicit InterpretedProgram(std::int32_t num_ranks) : exchange(num_ranks) {}
  LocalExchange exchange;
  std::vector<std::unique_ptr<InterpretedRank>> ranks;
};

}  // namespace

struct Interpreter::State {
  StageTable stages;
  InterpreterOptions options;
  std::vector<std::unique_ptr<InterpretedProgram>> programs;
  std::int64_t num_steps = 0;
  const InterpretedProgram* last = nullptr;

  InterpretedProgram& get(ProgramHandle handle) {
    if (handle.value < 0 || handle.index() >= programs.size() || !programs[handle.index()]) {
      throw std::logic_error(fmt::format("the interpreter has no program {}", handle.value));
    }
    return *programs[handle.index()];
  }

  void run_step(InterpretedProgram& program);
  bool take_turn(InterpretedProgram& program, InterpretedRank& rank);
  void report_finished(InterpretedProgram& program);
};

Interpreter::Interpreter(StageTable stages, InterpreterOptions options) : state_(std::make_unique<State>()) {
  state_->stages = std::move(stages);
  state_->options = options;
}

Interpreter::~Interpreter() = default;

ProgramHandle Interpreter::prepare(std::shared_ptr<const Program> program, const SlotShape& shape) {
  auto made = std::make_unique<InterpretedProgram>(program->layout.pp());
  for (RankId rank{0}; rank.index() < program->ranks.size(); rank = rank.next()) {
    made->ranks.push_back(std::make_unique<InterpretedRank>(make_rank_plan(program, rank), state_->stages,
                                                            made->exchange, state_->options.observer));
    InterpretedRank& added = *made->ranks.back();
    added.store.configure(shape, added.plan.steps().num_value_slots, added.plan.steps().num_gradient_slots,
                          poisons(state_->options.poison));
    made->exchange.add_rank(added.plan, added.store);
  }
  const ProgramHandle handle(state_->programs.size());
  state_->programs.push_back(std::move(made));
  return handle;
}

void Interpreter::discard(ProgramHandle handle) {
  if (state_->last == &state_->get(handle)) state_->last = nullptr;
  state_->programs[handle.index()].reset();
}

// All that this rank can do now. True if it did anything.
bool Interpreter::State::take_turn(InterpretedProgram& program, InterpretedRank& rank) {
  bool moved = false;
  while (rank.comm.advance())
    moved = true;
  report_finished(program);
  while (rank.num_computed < rank.comm.runnable()) {
    rank.runner.run(rank.num_computed++);
    rank.comm.computed(rank.num_computed);
    moved = true;
  }
  return moved;
}

void Interpreter::State::report_finished(InterpretedProgram& program) {
  while (const auto end = program.exchange.next_finished()) {
    InterpretedRank& rank = *program.ranks[end->rank.index()];
    if (options.observer != nullptr) {
      options.observer->message_finished(end->rank, message_event(rank.plan, end->comm));
    }
    rank.comm.message_finished(end->comm);
  }
}

void Interpreter::State::run_step(InterpretedProgram& program) {
  program.exchange.reset();
  for (const auto& rank : program.ranks) {
    rank->memory.reset();
    rank->runner.reset();
    rank->comm.reset();
    rank->num_computed = 0;
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (const auto& rank : program.ranks)
      moved = take_turn(program, *rank) || moved;
  }
  for (const auto& rank : program.ranks) {
    if (rank->num_computed == rank->plan.num_compute() && rank->comm.finished()) {
      rank->memory.check_end();
      continue;
    }
    std::string what = "nothing";
    if (const auto blocker = rank->comm.blocker(rank->num_computed)) {
      what = blocker->comm ? comm_sentence(rank->plan, blocker->step)
                           : compute_action(rank->plan, static_cast<std::size_t>(blocker->step));
    }
    const std::string action = rank->num_computed < rank->plan.num_compute()
                                   ? compute_action(rank->plan, rank->num_computed)
                                   : "the end of the step";
    throw StallError(rank->plan.rank, action, what, std::nullopt, std::chrono::nanoseconds(0));
  }
}

std::vector<StepResult> Interpreter::run(ProgramHandle handle) {
  InterpretedProgram& program = state_->get(handle);
  state_->last = &program;
  try {
    state_->run_step(program);
  } catch (...) {
    for (Stage* stage : state_->stages)
      stage->abandon();
    for (const auto& rank : program.ranks)
      rank->store.clear();
    throw;
  }
  std::vector<StepResult> results;
  for (const auto& rank : program.ranks) {
    StepResult& result = results.emplace_back();
    result.step = state_->num_steps;
    result.sent = program.exchange.sent(rank->plan.rank);
    result.received = program.exchange.received(rank->plan.rank);
    result.num_contributions = rank->memory.counts().total();
    result.peak_deferred_bytes = rank->runner.peak_deferred_bytes();
  }
  ++state_->num_steps;
  return results;
}

const BlockStore& Interpreter::store(RankId rank) const {
  if (state_->last == nullptr || rank.index() >= state_->last->ranks.size()) {
    throw std::logic_error(fmt::format("the interpreter has run no program with a rank {}", rank.value));
  }
  return state_->last->ranks[rank.index()]->store;
}

std::vector<StepResult> interpret_single_thread(std::shared_ptr<const Program> program, StageTable stages,
                                                const SlotShape& shape, InterpreterOptions options) {
  Interpreter interpreter(std::move(stages), options);
  return interpreter.run(interpreter.prepare(std::move(program), shape));
}

}  // namespace plumb
