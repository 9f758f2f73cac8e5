// SPDX-License-Identifier: Apache-2.0
#include "plumb/runtime/executor.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "comm_worker.hpp"
#include "compute_runner.hpp"
#include "plumb/schedule/error.hpp"
#include "poison.hpp"
#include "start_check.hpp"
#include "transport_failure.hpp"

namespace plumb {
namespace {

// For a rank without messages.
class NoMessages final : public MessagePort {
 public:
  void post(std::int32_t) override { throw std::logic_error("a message without a transport"); }
};

// Everything a program needs on this rank, made once.
struct Prepared {
  Prepared(RankPlan made, const SlotShape& slot_shape, BlockStore& store, const StageTable& stages,
           Transport* transport, const ExecutorOptions& options)
      : plan(std::move(made)), shape(slot_shape), memory(plan, store), runner(plan, memory, stages, options.observer) {
    if (plan.num_comm() > 0) port.emplace(plan, store, *transport, options);
    comm.emplace(plan, memory, port ? static_cast<MessagePort&>(*port) : no_messages);
  }

  RankPlan plan;
  SlotShape shape;
  StepMemory memory;
  ComputeRunner runner;
  NoMessages no_messages;
  std::optional<TransportPort> port;
  std::optional<CommState> comm;
};

}  // namespace

struct Executor::State {
  State(RankId own_rank, StageTable own_stages, Transport* the_transport, ControlPlane* the_control,
        ExecutorOptions the_options)
      : rank(own_rank),
        stages(std::move(own_stages)),
        transport(the_transport),
        control(the_control),
        options(std::move(the_options)),
        clock(options.clock ? options.clock : std::make_shared<SteadyClock>()) {
    if (options.wait_limit <= std::chrono::nanoseconds(0)) {
      throw InputError("the limit of a wait must be positive");
    }
    if (transport == nullptr) return;
    if (transport->rank().value != rank.value) {
      throw InputError(fmt::format("rank {} was given the transport of rank {}", rank.value, transport->rank().value));
    }
    if (transport->size() > 1) worker.emplace(rank, *transport, options, *clock);
  }

  Prepared& get(ProgramHandle handle) {
    if (handle.value < 0 || handle.index() >= programs.size() || !programs[handle.index()]) {
      throw std::logic_error(fmt::format("the executor of rank {} has no program {}", rank.value, handle.value));
    }
    return *programs[handle.index()];
  }

  void make_room(const Prepared& prepared) {
    store.configure(prepared.shape, prepared.plan.steps().num_value_slots, prepared.plan.steps().num_gradient_slots,
                    poisons(options.poison));
  }

  void compare(const Program& program, const SlotShape& shape);
  void compute_all(Prepared& prepared);
  void run_step(Prepared& prepared);
  void give_up(const Prepared& prepared, const char* reason);

  RankId rank;
  StageTable stages;
  Transport* transport;
  ControlPlane* control;
  ExecutorOptions options;
  std::shared_ptr<const Clock> clock;
  BlockStore store;
  std::vector<std::unique_ptr<Prepared>> programs;
  ProgramHandle configured{-1};  // whose slots the store is laid out for
  std::int64_t num_steps = 0;
  bool failed = false;
  std::optional<CommWorker> worker;
};

Executor::Executor(RankId rank, StageTable stages, Transport* transport, ControlPlane* control, ExecutorOptions options)
    : state_(std::make_unique<State>(rank, std::move(stages), transport, control, std::move(options))) {}

Executor::~Executor() = default;

const BlockStore& Executor::store() const { return state_->store; }

void Executor::State::compare(const Program& program, const SlotShape& shape) {
  if (control == nullptr) return;
  try {
    compare_programs(rank, start_fingerprint(program, shape, options), *control, options.wait_limit);
  } catch (const TransportError& error) {
    failed = true;
    throw peer_error(rank, "", error.fault());
  }
}

ProgramHandle Executor::prepare(std::shared_ptr<const Program> program, const SlotShape& shape) {
  State& state = *state_;
  if (state.failed) throw std::logic_error("the executor has failed and takes no more programs");
  state.compare(*program, shape);
  const std::int32_t size = state.transport == nullptr ? 1 : state.transport->size();
  if (program->layout.pp() != size) {
    throw InputError(fmt::format("a program for {} ranks on {} ranks", program->layout.pp(), size));
  }
  auto prepared = std::make_unique<Prepared>(make_rank_plan(std::move(program), state.rank), shape, state.store,
                                             state.stages, state.transport, state.options);
  state.configured = ProgramHandle{-1};
  state.make_room(*prepared);
  if (prepared->port) prepared->port->reserve();
  const ProgramHandle handle(state.programs.size());
  state.programs.push_back(std::move(prepared));
  state.configured = handle;
  return handle;
}

void Executor::discard(ProgramHandle handle) {
  state_->get(handle);
  state_->programs[handle.index()].reset();
  if (state_->configured == handle) state_->configured = ProgramHandle{-1};
}

void Executor::State::compute_all(Prepared& prepared) {
  const RankPlan& plan = prepared.plan;
  const std::size_t num_compute = plan.num_compute();
  if (!prepared.port) {
    for (std::size_t i = 0; i < num_compute; ++i)
      prepared.runner.run(i);
    return;
  }
  using WallClock = std::chrono::steady_clock;
  for (std::size_t i = 0; i < num_compute && worker->wait_runnable(i); ++i) {
    const WallClock::time_point start = WallClock::now();
    prepared.runner.run(i);
    const bool wake = i + 1 == num_compute || !plan.comm_after_compute[i].empty();
    worker->computed(i + 1, wake, WallClock::now() - start);
  }
}

void Executor::State::run_step(Prepared& prepared) {
  prepared.memory.reset();
  prepared.runner.reset();
  prepared.comm->reset();
  if (!prepared.port) {
    compute_all(prepared);
  } else {
    prepared.port->reset(num_steps);
    worker->begin({&prepared.plan, &*prepared.comm, &*prepared.port});
    std::exception_ptr error;
    try {
      compute_all(prepared);
      error = worker->end();
    } catch (...) {
      worker->abort();
      worker->end();
      throw;
    }
    if (error) std::rethrow_exception(error);
  }
  prepared.memory.check_end();
}

// The other ranks must not wait for this one; and the stages must not wait for a backward.
void Executor::State::give_up(const Prepared& prepared, const char* reason) {
  failed = true;
  if (transport != nullptr) transport->fail(reason);
  for (const ChunkId chunk : prepared.plan.program->layout.chunks_on(rank))
    stages[chunk.index()]->abandon();
}

StepResult Executor::run(ProgramHandle handle) {
  State& state = *state_;
  if (state.failed) throw std::logic_error("the executor has failed and runs no more steps");
  Prepared& prepared = state.get(handle);
  if (state.configured != handle) {
    state.make_room(prepared);
    state.configured = handle;
  }
  const std::chrono::nanoseconds start = state.clock->now();
  try {
    state.run_step(prepared);
  } catch (const std::exception& error) {
    state.give_up(prepared, error.what());
    throw;
  } catch (...) {
    state.give_up(prepared, "its stage threw something unknown");
    throw;
  }
  StepResult result;
  result.step = state.num_steps++;
  result.num_contributions = prepared.memory.counts().total();
  result.peak_deferred_bytes = prepared.runner.peak_deferred_bytes();
  if (prepared.port) {
    result.sent = prepared.port->sent();
    result.received = prepared.port->received();
  }
  result.wall = state.clock->now() - start;
  return result;
}

}  // namespace plumb
