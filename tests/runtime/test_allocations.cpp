// SPDX-License-Identifier: Apache-2.0
#include <condition_variable>
#include <mutex>

#include "cache/support/programs.hpp"
#include "kernels/support/allocation_count.hpp"
#include "runtime/support/inproc_ranks.hpp"
#include "runtime/support/integer_host.hpp"
#include "support/catch.hpp"

namespace plumb::test {
namespace {

// All ranks meet; std::barrier and the control plane allocate.
class Meeting {
 public:
  explicit Meeting(int num_ranks) : num_ranks_(num_ranks) {}
  void wait() {
    std::unique_lock lock(mutex_);
    const int round = round_;
    if (++num_here_ == num_ranks_) {
      num_here_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round; });
  }

 private:
  int num_ranks_;
  int num_here_ = 0;
  int round_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

std::int64_t allocations_after_first_step(const std::shared_ptr<const Program>& program, bool verify) {
  const IntegerModel model(program->depth, 2, 4);
  IntegerHost host(model, program->depth, program->layout.microbatches(), Storage::fp64);
  ExecutorOptions options;
  options.verify_messages = verify;
  std::int64_t count = 0;
  Meeting meeting(program->layout.pp());
  on_all_ranks(program->layout.pp(), [&](const RankPlace& place) {
    Executor executor(place.rank, host.stages(), &place.transport, &place.control, options);
    const ProgramHandle handle = executor.prepare(program, host.shape());
    executor.run(handle);
    meeting.wait();
    if (place.rank.value == 0) count = testing::num_allocations();
    meeting.wait();
    for (int i = 0; i < 20; ++i)
      executor.run(handle);
    meeting.wait();
    if (place.rank.value == 0) count = testing::num_allocations() - count;
    meeting.wait();
  });
  return count;
}

}  // namespace

TEST_CASE("a counted allocation is noticed", "[runtime]") {
  const std::int64_t before = testing::num_allocations();
  const auto one = std::make_unique<int>(1);
  CHECK(testing::num_allocations() > before);
}

TEST_CASE("no step after the first allocates", "[runtime]") {
  for (const Policy policy : block_policies) {
    const auto program = std::make_shared<const Program>(small_program(policy));
    INFO(to_string(policy));
    CHECK(allocations_after_first_step(program, false) == 0);
    CHECK(allocations_after_first_step(program, true) == 0);
  }
}

}  // namespace plumb::test
