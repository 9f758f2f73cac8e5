// SPDX-License-Identifier: Apache-2.0
//
// The executor between processes. Run under mpirun with any number of ranks; every process makes the same programs and
// compares what its own chunks got with the one-thread interpreter, which it runs for all ranks.
#include <chrono>
#include <random>
#include <thread>

#include "cache/support/programs.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/cache/volume.hpp"
#include "plumb/runtime/executor.hpp"
#include "plumb/runtime/interpreter.hpp"
#include "plumb/runtime/run_error.hpp"
#include "plumb/schedule/generators.hpp"
#include "runtime/support/integer_host.hpp"
#include "runtime/support/model_host.hpp"
#include "runtime/support/named_programs.hpp"
#include "support/catch.hpp"
#include "support/mpi_world.hpp"

namespace plumb::test {
namespace {

using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;
using ProgramPtr = std::shared_ptr<const Program>;

constexpr std::chrono::seconds limit{60};

struct ExecutorWorld : World {
  Executor executor(const StageTable& stages, const ExecutorOptions& options = {}) const {
    return Executor(rank(), stages, &mpi->transport(), &mpi->control(), options);
  }
};

ProgramPtr random_program_on(Dice& dice, int num_ranks) {
  for (;;) {
    auto program = random_program(dice, {.pp = num_ranks, .vp = 3, .sublayers = 14, .microbatches = 8});
    if (program.layout.pp() == num_ranks) return std::make_shared<const Program>(std::move(program));
  }
}

ProgramPtr regular_program(int num_ranks, Policy policy, int vp = 2) {
  const Layout layout(num_ranks, vp, 2 * num_ranks);
  const int sublayers = 3 * layout.num_chunks() + 1;
  const DepthMap depth(sublayers, 2, DepthMap::even_cuts(sublayers, sublayers, layout.num_chunks()));
  return std::make_shared<const Program>(lower(interleaved(layout, default_group(layout)), depth, policy));
}

// Chunks of this rank whose gradients differ from the interpreter's.
int num_different(const ExecutorWorld& world, const Program& program, const ModelHost& host,
                  const ModelHost& expected) {
  int different = 0;
  for (const ChunkId chunk : program.layout.chunks_on(world.rank())) {
    different += host.gradients(chunk) == expected.gradients(chunk) ? 0 : 1;
  }
  return different;
}

TEST_CASE("processes give an integer model the gradients of one process and the bytes of the formula", "[runtime]") {
  const ExecutorWorld world;
  Dice dice(51);
  for (int i = 0; i < 12; ++i) {
    const ProgramPtr program = random_program_on(dice, world.size());
    INFO(describe(*program));
    const IntegerModel model(program->depth, 3, 4);
    IntegerHost host(model, program->depth, program->layout.microbatches(), Storage::fp64);
    ExecutorOptions options;
    options.poison = Poison::always;
    options.verify_messages = i % 2 == 1;
    Executor executor = world.executor(host.stages(), options);
    const StepResult result = executor.run(executor.prepare(program, host.shape()));
    const auto expected = model.reference(program->layout.microbatches());
    for (const ChunkId chunk : program->layout.chunks_on(world.rank())) {
      const SublayerRange range = program->depth.sublayers_of(chunk);
      for (int l = range.begin; l < range.end && !program->forward_only; ++l) {
        CHECK(host.weight_gradients(chunk)[static_cast<std::size_t>(l - range.begin)] ==
              expected.weights[static_cast<std::size_t>(l)]);
      }
    }
    std::uint64_t received = 0;
    for (const std::string& bytes :
         world.mpi->control().exchange(std::to_string(result.received.total_bytes()), limit)) {
      received += std::stoull(bytes);
    }
    const std::uint64_t unit_both_ways =
        host.shape().value_bytes() + (program->forward_only ? 0 : host.shape().gradient_bytes());
    CHECK(received ==
          static_cast<std::uint64_t>(expected_units(program->layout, program->depth, program->routing.policy) *
                                     program->layout.microbatches()) *
              unit_both_ways);
  }
}

TEST_CASE("processes and one thread give the same bits, step after step", "[runtime]") {
  const ExecutorWorld world;
  Dice dice(52);
  for (int i = 0; i < 8; ++i) {
    const ProgramPtr program = random_program_on(dice, world.size());
    ModelOptions model;
    model.recompute = i % 2 == 1;
    INFO(describe(*program));
    ModelHost alone(program->depth, model);
    interpret_single_thread(program, alone.stages(), alone.shape());
    ModelHost host(program->depth, model);
    Executor executor = world.executor(host.stages());
    const ProgramHandle handle = executor.prepare(program, host.shape());
    for (int step = 0; step < 3; ++step) {
      host.clear();
      executor.run(handle);
      CHECK(num_different(world, *program, host, alone) == 0);
    }
  }
}

TEST_CASE("processes give the bits of one thread under every schedule", "[runtime]") {
  const ExecutorWorld world;
  for (const ScheduleKind kind : all_schedule_kinds()) {
    for (const Policy policy : block_policies) {
      // Many processes on few cores are slow to take turns.
      if (world.size() > 4 && policy != Policy::cached) continue;
      const ProgramPtr program = std::make_shared<const Program>(regular_program_of(kind, world.size(), policy));
      INFO(describe(*program));
      ModelOptions model;
      model.recompute = policy == Policy::relay;
      ModelHost alone(program->depth, model);
      const auto expected = interpret_single_thread(program, alone.stages(), alone.shape());
      ModelHost host(program->depth, model);
      Executor executor = world.executor(host.stages());
      const StepResult result = executor.run(executor.prepare(program, host.shape()));
      CHECK(num_different(world, *program, host, alone) == 0);
      CHECK(result.received == expected[world.rank().index()].received);
      CHECK(result.peak_deferred_bytes == expected[world.rank().index()].peak_deferred_bytes);
    }
  }
}

TEST_CASE("random delays between processes change no bit", "[runtime]") {
  class Delays final : public StepObserver {
   public:
    explicit Delays(RankId rank) : compute_(static_cast<unsigned>(rank.value)), comm_(compute_() + 1) {}
    void compute_starting(RankId, const Compute&) override { delay(compute_); }
    void message_starting(RankId, const MessageEvent&) override { delay(comm_); }

   private:
    static void delay(std::mt19937& engine) { std::this_thread::sleep_for(std::chrono::microseconds(engine() % 201)); }
    std::mt19937 compute_;
    std::mt19937 comm_;
  };
  const ExecutorWorld world;
  for (const Policy policy : block_policies) {
    INFO(to_string(policy));
    const ProgramPtr program = regular_program(world.size(), policy);
    const ModelOptions model;
    ModelHost alone(program->depth, model);
    interpret_single_thread(program, alone.stages(), alone.shape());
    ModelHost host(program->depth, model);
    Delays delays(world.rank());
    ExecutorOptions options;
    options.observer = &delays;
    options.wait_limit = limit;
    Executor executor = world.executor(host.stages(), options);
    const ProgramHandle handle = executor.prepare(program, host.shape());
    int different = 0;
    for (int run = 0; run < 5; ++run) {
      host.clear();
      executor.run(handle);
      different += num_different(world, *program, host, alone);
    }
    CHECK(different == 0);
  }
}

// Three ranks in a row, as in test_forwarding.cpp; clocks of one machine agree.
class HoldMiddle final : public StepObserver {
 public:
  HoldMiddle(const Program& program, std::chrono::milliseconds hold) : program_(program), hold_(hold) {}
  void compute_starting(RankId rank, const Compute& compute) override {
    if (rank.value != 1 || compute.op != Op::forward) return;
    std::this_thread::sleep_for(hold_);
    released_ns = Clock::now().time_since_epoch().count();
  }
  void message_finished(RankId rank, const MessageEvent& event) override {
    if (rank.value != 2 || event.sends || event.what.direction != Direction::forward) return;
    for (const HoldingId id : program_.routing.transfers[event.what.transfer.index()].holdings) {
      if (program_.routing.holdings[id.index()].block == BlockId{0}) {
        arrived_ns = Clock::now().time_since_epoch().count();
      }
    }
  }
  std::int64_t released_ns = 0;
  std::int64_t arrived_ns = 0;

 private:
  const Program& program_;
  std::chrono::milliseconds hold_;
};

// Whether b_0 reached rank 2 while rank 1 was held.
bool passes_while_held(const ExecutorWorld& world, Policy policy, std::chrono::milliseconds hold) {
  const Layout layout(world.size(), 1, 1);
  const int sublayers = 2 * world.size();
  const DepthMap depth(sublayers, 2, DepthMap::even_cuts(sublayers, sublayers, world.size()));
  const auto program = std::make_shared<const Program>(lower(one_f_one_b(layout), depth, policy));
  const IntegerModel model(program->depth, 2, 4);
  IntegerHost host(model, program->depth, 1, Storage::fp64);
  HoldMiddle observer(*program, hold);
  ExecutorOptions options;
  options.observer = &observer;
  Executor executor = world.executor(host.stages(), options);
  executor.run(executor.prepare(program, host.shape()));
  const auto released = world.mpi->control().exchange(std::to_string(observer.released_ns), limit);
  const auto arrived = world.mpi->control().exchange(std::to_string(observer.arrived_ns), limit);
  return std::stoll(arrived[2]) < std::stoll(released[1]);
}

TEST_CASE("a passing block reaches the next process while the middle one computes, under cached only", "[runtime]") {
  const ExecutorWorld world;
  if (world.size() < 3) return;
  // On a busy machine the block may need longer than the hold; a longer hold decides.
  bool passed = false;
  for (const int hold_ms : {200, 1000, 5000}) {
    passed = passed || passes_while_held(world, Policy::cached, std::chrono::milliseconds(hold_ms));
  }
  CHECK(passed);
  CHECK_FALSE(passes_while_held(world, Policy::relay, std::chrono::milliseconds(200)));
}

TEST_CASE("an executor between processes trains, evaluates and trains with another number of microbatches",
          "[runtime]") {
  const ExecutorWorld world;
  const Layout layout(world.size(), 2, world.size());
  const DepthMap depth(13, 3, DepthMap::even_cuts(13, 13, layout.num_chunks()));
  const auto program_of = [&](int microbatches, bool forward_only) {
    const Schedule schedule = interleaved(layout.with_microbatches(microbatches), layout.pp(), forward_only);
    return std::make_shared<const Program>(lower(schedule, depth, Policy::cached));
  };
  const ModelOptions model;
  ModelHost host(depth, model);
  Executor executor = world.executor(host.stages());
  const ProgramHandle few = executor.prepare(program_of(world.size(), false), host.shape());
  executor.run(few);
  const ProgramHandle evaluation = executor.prepare(program_of(2 * world.size(), true), host.shape());
  executor.run(evaluation);
  host.clear();
  const ProgramPtr program = program_of(3 * world.size(), false);
  executor.run(executor.prepare(program, host.shape()));
  ModelHost alone(depth, model);
  interpret_single_thread(program, alone.stages(), alone.shape());
  CHECK(num_different(world, *program, host, alone) == 0);
}

TEST_CASE("a stage that throws in one process ends the others within seconds", "[runtime]") {
  class Broken final : public Stage {
   public:
    void forward(const StageForward&) override { throw std::domain_error("the loss is not a number"); }
    void backward(const StageBackward&) override {}
  };
  const ExecutorWorld world;
  if (world.size() < 2) return;
  const ProgramPtr program = regular_program(world.size(), Policy::cached);
  const IntegerModel model(program->depth, 2, 4);
  IntegerHost host(model, program->depth, program->layout.microbatches(), Storage::fp64);
  Broken broken;
  StageTable stages = host.stages();
  stages[1] = &broken;
  Executor executor = world.executor(stages);
  // A slow rank may still be comparing programs when rank 1 fails.
  const auto step = [&] { executor.run(executor.prepare(program, host.shape())); };
  if (world.rank().value == 1) {
    CHECK_THROWS_AS(step(), std::domain_error);
    return;
  }
  try {
    step();
    FAIL("nothing was thrown");
  } catch (const PeerError& error) {
    CHECK(error.peer() == RankId{1});
    CHECK_THAT(error.what(), Contains("rank 1 failed") && Contains("the loss is not a number"));
  }
}

TEST_CASE("another program on the last process is refused on all", "[runtime]") {
  const ExecutorWorld world;
  if (world.size() < 2) return;
  const ProgramPtr usual = regular_program(world.size(), Policy::cached);
  const ProgramPtr other = regular_program(world.size(), Policy::direct);
  const IntegerModel model(usual->depth, 2, 4);
  IntegerHost host(model, usual->depth, usual->layout.microbatches(), Storage::fp64);
  const bool last = world.rank().value + 1 == world.size();
  Executor executor = world.executor(host.stages());
  CHECK_THROWS_WITH(executor.prepare(last ? other : usual, host.shape()),
                    Contains("cached") && Contains("direct") && Contains("rank " + std::to_string(world.size() - 1)));
  executor.run(executor.prepare(usual, host.shape()));
}

}  // namespace
}  // namespace plumb::test
