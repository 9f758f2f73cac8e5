// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "plumb/cache/lower.hpp"
#include "plumb/schedule/generators.hpp"
#include "runtime/support/inproc_ranks.hpp"
#include "runtime/support/integer_host.hpp"
#include "support/catch.hpp"

namespace plumb::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Three ranks, one chunk and one block each: b_0 and b_1 pass through rank 1 on their way to rank 2.
std::shared_ptr<const Program> three_in_a_row(Policy policy) {
  const Layout layout(3, 1, 1);
  return std::make_shared<const Program>(
      lower(one_f_one_b(layout), DepthMap(6, 2, DepthMap::even_cuts(6, 6, 3)), policy));
}

// Holds one forward of the middle rank until b_0 of `passing` has reached the last rank, or for `longest`. If the two
// differ the first rank computes `passing` only once the middle one is held.
class Hold final : public StepObserver {
 public:
  Hold(const Program& program, Microbatch held, Microbatch passing, milliseconds longest)
      : program_(program), held_(held), passing_(passing), longest_(longest) {}

  void compute_starting(RankId rank, const Compute& compute) override {
    if (compute.op != Op::forward) return;
    if (rank.value == 0 && compute.microbatch == passing_ && passing_ != held_) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, longest_, [this] { return holds_; });
    }
    if (rank.value == 1 && compute.microbatch == held_) {
      std::unique_lock lock(mutex_);
      holds_ = true;
      changed_.notify_all();
      passed_ = changed_.wait_for(lock, longest_, [this] { return arrived_; });
    }
  }
  void message_finished(RankId rank, const MessageEvent& event) override {
    if (rank.value != 2 || event.sends || event.what.direction != Direction::forward) return;
    if (event.what.microbatch != passing_) return;
    for (const HoldingId id : program_.routing.transfers[event.what.transfer.index()].holdings) {
      if (program_.routing.holdings[id.index()].block != BlockId{0}) continue;
      const std::lock_guard lock(mutex_);
      arrived_ = true;
      changed_.notify_all();
    }
  }
  bool passed_while_held() const { return passed_; }

 private:
  const Program& program_;
  Microbatch held_;
  Microbatch passing_;
  milliseconds longest_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool holds_ = false;
  bool arrived_ = false;
  bool passed_ = false;
};

bool passes_while_held(Policy policy, milliseconds longest) {
  const auto program = three_in_a_row(policy);
  const IntegerModel model(program->depth, 2, 4);
  IntegerHost host(model, program->depth, 1, Storage::fp64);
  Hold hold(*program, Microbatch{0}, Microbatch{0}, longest);
  ExecutorOptions options;
  options.observer = &hold;
  run_on_threads(program, host.stages(), host.shape(), options);
  CHECK(host.gradients() == model.reference(1));
  return hold.passed_while_held();
}

}  // namespace

TEST_CASE("a passing block reaches the next rank while the middle rank computes, under cached only", "[runtime]") {
  CHECK(passes_while_held(Policy::cached, seconds(30)));
  CHECK_FALSE(passes_while_held(Policy::relay, milliseconds(200)));
}

// After many short computations the compute workers communicate themselves; a long one must not stop that.
TEST_CASE("a computation that is long after many short ones does not hold passing blocks", "[runtime]") {
  const Layout layout(3, 1, 60);
  LowerOptions lower_options;
  lower_options.post_ahead = 4;
  const auto program = std::make_shared<const Program>(
      lower(breadth_first(layout), DepthMap(6, 2, {2, 4, 6}), Policy::cached, lower_options));
  class EmptyStage : public Stage {
    void forward(const StageForward&) override {}
    void backward(const StageBackward&) override {}
  };
  // The first rank is the slowest, so that the others wait before each computation.
  class SlowStage final : public EmptyStage {
    void forward(const StageForward&) override { std::this_thread::sleep_for(std::chrono::microseconds(50)); }
  };
  EmptyStage stage;
  SlowStage first;
  for (int i = 0; i < 5; ++i) {
    Hold hold(*program, Microbatch{40}, Microbatch{41}, seconds(30));
    ExecutorOptions options;
    options.observer = &hold;
    run_on_threads(program, {&first, &stage, &stage}, {1, 4, Storage::fp32}, options);
    CHECK(hold.passed_while_held());
  }
}

}  // namespace plumb::test
