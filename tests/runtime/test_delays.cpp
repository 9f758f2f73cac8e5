// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <random>
#include <thread>

#include "cache/support/programs.hpp"
#include "plumb/runtime/interpreter.hpp"
#include "runtime/support/inproc_ranks.hpp"
#include "runtime/support/model_host.hpp"
#include "runtime/support/named_programs.hpp"
#include "support/catch.hpp"

namespace plumb::test {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int num_runs = 50;  // each is many times slower
#else
constexpr int num_runs = 1000;
#endif

constexpr int longest_delay_us = 200;
constexpr std::chrono::seconds limit{60};

// Uniform 0 to 200 us before each computation and each message; `sometimes`: before few of them only, so that long and
// short computations alternate and the workers of a rank change who communicates.
class Delays final : public StepObserver {
 public:
  Delays(std::uint32_t seed, bool sometimes) : sometimes_(sometimes), compute_(seed), comm_(seed + 1) {}
  void compute_starting(RankId, const Compute&) override { delay(compute_); }
  void message_starting(RankId, const MessageEvent&) override { delay(comm_); }

 private:
  void delay(std::mt19937& engine) const {
    if (sometimes_ && engine() % 64 != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(engine() % (longest_delay_us + 1)));
  }
  bool sometimes_;
  std::mt19937 compute_;  // computations and messages overlap
  std::mt19937 comm_;
};

// Steps whose bits differ from those of one thread.
int num_different(const std::shared_ptr<const Program>& program, int num_runs_wanted, bool sometimes = false) {
  const ModelOptions model;
  ModelHost alone(program->depth, model);
  interpret_single_thread(program, alone.stages(), alone.shape());
  ModelHost host(program->depth, model);
  int different = 0;
  on_all_ranks(program->layout.pp(), [&](const RankPlace& place) {
    Delays delays(static_cast<std::uint32_t>(100 * place.rank.value), sometimes);
    ExecutorOptions options;
    options.observer = &delays;
    options.wait_limit = limit;
    Executor executor(place.rank, host.stages(), &place.transport, &place.control, options);
    const ProgramHandle handle = executor.prepare(program, host.shape());
    for (int i = 0; i < num_runs_wanted; ++i) {
      executor.run(handle);
      place.control.barrier(limit);
      if (place.rank.value == 0) {
        different += host.gradients() == alone.gradients() && host.losses() == alone.losses() ? 0 : 1;
        host.clear();
      }
      place.control.barrier(limit);
    }
  });
  return different;
}

std::shared_ptr<const Program> small(Policy policy) { return std::make_shared<const Program>(small_program(policy)); }

}  // namespace

TEST_CASE("random delays before every action and message change no bit and hang nothing", "[runtime]") {
  for (const Policy policy : block_policies) {
    INFO(to_string(policy));
    CHECK(num_different(small(policy), 5) == 0);
    CHECK(num_different(small(policy), 100, true) == 0);
  }
}

TEST_CASE("random delays change no bit under any schedule", "[runtime]") {
  for (const ScheduleKind kind : all_schedule_kinds()) {
    for (const Policy policy : {Policy::cached, Policy::direct}) {
      const auto program = std::make_shared<const Program>(regular_program_of(kind, 3, policy));
      INFO(describe(*program));
      CHECK(num_different(program, 2) == 0);
      CHECK(num_different(program, 10, true) == 0);
    }
  }
}

// Hidden here because it takes most of a minute: a ctest entry of its own runs it.
TEST_CASE("random delays a thousand times", "[.][delays]") {
  CHECK(num_different(small(Policy::cached), num_runs) == 0);
}

}  // namespace plumb::test
