// SPDX-License-Identifier: Apache-2.0
#include "plumb/rehearsal/rehearsal_stage.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>
#include <time.h>

#include "stamp.hpp"

namespace plumb {
namespace {

using Steady = std::chrono::steady_clock;

void sleep_until(Steady::time_point until) {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(until.time_since_epoch()).count();
  const timespec at{.tv_sec = since / 1'000'000'000, .tv_nsec = since % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
  }
}

}  // namespace

// One computation: begun at construction, over when its time is. A sleep ends some 50 us late on a virtual machine;
// what it was late is taken off the next computation if that follows at once, so that a busy rank keeps its pace.
class RehearsalStage::Sitting {
 public:
  Sitting(Play& play, const Compute& compute) : play_(play) {
    const Steady::time_point start = Steady::now();
    const std::chrono::nanoseconds time = duration(play, compute);
    until_ = start + time;
    const Steady::time_point before(play.ended);
    if (start - before < at_once) until_ -= std::min(play.late, time / 4);
    if (play_.waits_for_compute != nullptr) play_.waits_for_compute->computing(true);
  }
  ~Sitting() {
    sleep_until(until_);
    const Steady::time_point end = Steady::now();
    play_.ended = end.time_since_epoch();
    play_.late = end - until_;
    if (play_.waits_for_compute != nullptr) play_.waits_for_compute->computing(false);
  }
  Sitting(const Sitting&) = delete;
  Sitting& operator=(const Sitting&) = delete;

  // Until there is just time for a look at the slots.
  void sit() const { sleep_until(until_ - for_a_look); }

 private:
  static constexpr std::chrono::microseconds at_once{200};
  static constexpr std::chrono::microseconds for_a_look{300};

  static std::chrono::nanoseconds duration(const Play& play, const Compute& compute) {
    auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(play.costs->time_of(compute));
    if (play.longest_extra.count() > 0) {
      const Stamp key{static_cast<std::int32_t>(play.step), compute.microbatch.value, compute.chunk.value,
                      static_cast<std::int32_t>(compute.op)};
      const auto draw = static_cast<std::uint64_t>(contribution(key).number + 8) * 7919 + play.seed * 104729 +
                        static_cast<std::uint64_t>(play.step);
      time += play.longest_extra * static_cast<std::int64_t>(draw % 1024) / 1024;
    }
    if (play.hangs_at == compute) time += play.hang;
    return time;
  }

  Play& play_;
  Steady::time_point until_;
};

void RehearsalStage::forward(const StageForward& args) {
  const Compute now{Op::forward, chunk_, args.microbatch};
  const Sitting sitting(play_, now);
  check_values(now, args.sources, args.partial_in);
  Stamp stamp{static_cast<std::int32_t>(play_.step), args.microbatch.value, chunk_.value, -1};
  if (play_.wrong_stamp_at == now) ++stamp.step;
  for (const BlockOutput& closed : args.closed) {
    stamp.block = closed.block.value;
    write_stamp(closed.value, stamp);
  }
  stamp.block = -1;
  if (args.partial_out.data != nullptr) write_stamp(args.partial_out, stamp);
  sitting.sit();
  check_values(now, args.sources, args.partial_in);
}

void RehearsalStage::backward(const StageBackward& args) { back(Op::backward, args); }

void RehearsalStage::backward_input(const StageBackward& args) { back(Op::backward_input, args); }

void RehearsalStage::backward_weight(Microbatch microbatch) {
  const Sitting sitting(play_, {Op::backward_weight, chunk_, microbatch});
}

void RehearsalStage::back(Op op, const StageBackward& args) {
  const Compute now{op, chunk_, args.microbatch};
  const Sitting sitting(play_, now);
  const auto step = static_cast<std::int32_t>(play_.step);
  const std::int32_t microbatch = args.microbatch.value;
  check_values(now, args.sources, args.partial_in);
  for (const BlockValue& closed : args.closed)
    check_value(now, closed.value, chunk_, closed.block.value);
  if (args.grad_partial_out.data != nullptr) {
    const GradientSum expected = contribution({step, microbatch, chunk_.value + 1, -1});
    check_sum(now, args.grad_partial_out, expected.number, expected.count, "the partial's gradient");
  }
  for (const BlockSum& closed : args.grad_closed) {
    const GradientSum expected = all_contributions(play_.program->depth, step, args.microbatch, closed.block);
    if (closed.first_touch) {
      if (expected.count != 0)
        report(now, fmt::format("nothing came for the gradient of block {}", closed.block.value));
      continue;
    }
    check_sum(now, closed.sum, expected.number, expected.count,
              fmt::format("the gradient of block {}", closed.block.value));
  }
  for (const BlockSum& source : args.grad_sources) {
    const GradientSum mine = contribution({step, microbatch, chunk_.value, source.block.value});
    source.first_touch ? write_gradient(source.sum, mine) : add_gradient(source.sum, mine);
  }
  if (args.grad_partial_in.data != nullptr) {
    write_gradient(args.grad_partial_in, contribution({step, microbatch, chunk_.value, -1}));
  }
  sitting.sit();
  check_values(now, args.sources, args.partial_in);
}

void RehearsalStage::check_values(const Compute& now, std::span<const BlockValue> blocks, const ConstView& partial_in) {
  for (const BlockValue& block : blocks)
    check_value(now, block.value, play_.program->depth.closer(block.block), block.block.value);
  if (partial_in.data != nullptr) check_value(now, partial_in, chunk_.previous(), -1);
}

void RehearsalStage::check_value(const Compute& now, const ConstView& value, ChunkId writer, std::int32_t block) {
  ++play_.num_checked;
  const Stamp expected{static_cast<std::int32_t>(play_.step), now.microbatch.value, writer.value, block};
  if (const auto found = wrong_stamp(value, expected)) {
    report(now, fmt::format("reads {} where {} should be", to_string(*found), to_string(expected)));
  }
}

void RehearsalStage::check_sum(const Compute& now, const ConstView& sum, std::int64_t number, std::int64_t count,
                               const std::string& what) {
  ++play_.num_checked;
  if (const auto wrong = wrong_gradient(sum, {number, count})) {
    report(now, fmt::format("{} is {} at element {}, should be {}", what, wrong->found, wrong->place, wrong->expected));
  }
}

void RehearsalStage::report(const Compute& now, const std::string& what) {
  if (play_.num_mismatches++ == 0)
    play_.first_mismatch = fmt::format("rank {}, {}: {}", rank_.value, to_string(now), what);
}

}  // namespace plumb
