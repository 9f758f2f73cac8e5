// SPDX-License-Identifier: Apache-2.0
//
// Every schedule under every routing policy: placements, split backwards, overlapped pairs, uneven cuts, empty chunks.
#include <array>
#include <map>
#include <utility>

#include "cache/support/layouts.hpp"
#include "plumb/cache/deadlock.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/cache/volume.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/named.hpp"
#include "support/catch.hpp"
#include "support/sanitized.hpp"

using namespace plumb;
using plumb::test::block_policies;
using plumb::test::Dice;

namespace {

// A schedule of this kind on a random layout that fits it: P <= 8, V <= 4, M <= 4P.
Schedule random_schedule(Dice& dice, ScheduleKind kind) {
  while (true) {
    const int pp = dice.roll(1, 8);
    const Layout layout(pp, dice.roll(1, 4), dice.roll(1, 4 * pp), placement_of(kind));
    try {
      return make_schedule({.kind = kind}, layout);
    } catch (const InputError&) {
      // V or M does not fit the kind: roll again.
    }
  }
}

LowerOptions random_options(Dice& dice) {
  LowerOptions options;
  options.post_ahead = dice.roll(0, 3);
  options.costs.forward = dice.roll(1, 9) * 100'000;
  options.costs.backward_input = dice.roll(0, 9) * 100'000;
  options.costs.backward_weight = dice.roll(0, 9) * 100'000;
  options.costs.value_unit = dice.roll(0, 3) * 50'000;
  options.costs.gradient_unit = dice.roll(0, 3) * 50'000;
  options.costs.latency = dice.roll(0, 2) * 30'000;
  options.costs.duplex = dice.roll(0, 1) == 0 ? Duplex::full : Duplex::half;
  return options;
}

void require_sound(const Program& program) {
  const std::vector<ProgramFault> faults = verify_program(program, 1);
  if (!faults.empty()) FAIL(program.schedule_name << " " << faults[0].token << ": " << faults[0].why);
  for (const ChannelModel model : all_channel_models()) {
    REQUIRE_FALSE(check_deadlock(program, model).deadlock);
  }
}

// Units on the wire, counted on the steps.
std::array<std::int64_t, 2> sent_units(const Program& program) {
  std::array<std::int64_t, 2> units{};
  for (const RankProgram& rank : program.ranks) {
    for (const CommStep& step : rank.comm) {
      if (step.kind != CommKind::send) continue;
      units[static_cast<std::size_t>(program.messages[step.message.index()].direction)] += step.segments.size();
    }
  }
  return units;
}

}  // namespace

TEST_CASE("every schedule under every policy gives sound programs that cannot deadlock and move what the formula says",
          "[cache]") {
  Dice dice(41);
  const int num_rounds = test::rounds(24, 6);
  for (const ScheduleKind kind : all_schedule_kinds()) {
    for (int round = 0; round < num_rounds; ++round) {
      const Schedule schedule = random_schedule(dice, kind);
      const Layout& layout = schedule.layout;
      const DepthMap depth = test::random_depth(dice, layout.num_chunks(), 60);
      for (const Policy policy : block_policies) {
        const Program program = lower(schedule, depth, policy, random_options(dice));
        require_sound(program);
        const std::int64_t expected = layout.microbatches() * expected_units(layout, depth, policy);
        REQUIRE(sent_units(program) == std::array{expected, expected});
      }
    }
  }
}

TEST_CASE("a gradient leaves with I, and no communication waits for W", "[cache]") {
  Dice dice(42);
  int num_gradients = 0;
  for (const ScheduleKind kind : all_schedule_kinds()) {
    for (int round = 0; round < 12; ++round) {
      const Schedule schedule = random_schedule(dice, kind);
      const DepthMap depth = test::random_depth(dice, schedule.layout.num_chunks(), 60);
      for (const Policy policy : block_policies) {
        const Program program = lower(schedule, depth, policy, random_options(dice));
        for (const RankProgram& rank : program.ranks) {
          std::map<std::pair<ChunkId, Microbatch>, std::int32_t> backward_at;
          for (std::size_t i = 0; i < rank.compute.size(); ++i) {
            const Compute& compute = rank.compute[i].compute;
            if (compute.op == Op::backward || compute.op == Op::backward_input) {
              backward_at[{compute.chunk, compute.microbatch}] = static_cast<std::int32_t>(i);
            }
          }
          for (const CommStep& step : rank.comm) {
            const Message& message = program.messages[step.message.index()];
            const bool gradient = step.kind == CommKind::send && message.direction == Direction::backward;
            bool waits_for_backward = false;
            for (const Wait& wait : rank.waits_of(step.waits)) {
              if (wait.on != Wait::On::compute) continue;
              REQUIRE(rank.compute[static_cast<std::size_t>(wait.step)].compute.op != Op::backward_weight);
              if (!gradient) continue;
              const ChunkId chunk = program.transfer_of(step.message).to_chunk;
              REQUIRE(wait.step == backward_at.at({chunk, message.microbatch}));
              waits_for_backward = true;
            }
            REQUIRE(waits_for_backward == gradient);
            num_gradients += gradient ? 1 : 0;
          }
          // Nothing is held for W either: it names no slot and frees none.
          for (const ComputeStep& step : rank.compute) {
            if (step.compute.op != Op::backward_weight) continue;
            REQUIRE(step.operands.size() + step.waits.size() + step.releases.size() == 0);
          }
        }
      }
    }
  }
  REQUIRE(num_gradients > 10'000);
}

TEST_CASE("a program whose messages follow one order passes the run of every channel model too", "[cache]") {
  // The same program with two messages' numbers exchanged has no such order by number, so that the checker must run it.
  Dice dice(43);
  for (const ScheduleKind kind : all_schedule_kinds()) {
    for (int round = 0; round < 6; ++round) {
      const Schedule schedule = random_schedule(dice, kind);
      const DepthMap depth = test::random_depth(dice, schedule.layout.num_chunks(), 60);
      Program program = lower(schedule, depth, Policy::cached, random_options(dice));
      if (program.messages.size() < 2) continue;
      const MessageId first(0);
      const MessageId last(program.messages.size() - 1);
      std::swap(program.messages.front(), program.messages.back());
      for (RankProgram& rank : program.ranks) {
        for (CommStep& step : rank.comm) {
          if (step.message == first || step.message == last) step.message = step.message == first ? last : first;
        }
      }
      require_sound(program);
    }
  }
}
