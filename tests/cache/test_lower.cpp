// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "cache/support/layouts.hpp"
#include "plumb/cache/deadlock.hpp"
#include "plumb/cache/encode.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/generators.hpp"
#include "support/catch.hpp"

using namespace plumb;
using plumb::test::block_policies;
using plumb::test::Dice;

namespace {

Program small_program(Policy policy, LowerOptions options = {}, bool forward_only = false) {
  const Layout layout(4, 2, 8);
  const DepthMap depth(32, 4, DepthMap::even_cuts(32, 16, 8));
  return lower(interleaved(layout, 4, forward_only), depth, policy, options);
}

std::int32_t peak(const Program& program, std::int32_t RankProgram::*member) {
  std::int32_t most = 0;
  for (const RankProgram& rank : program.ranks) {
    most = std::max(most, rank.*member);
  }
  return most;
}

}  // namespace

TEST_CASE("both ends of a channel list its messages in the same order with the same segments", "[cache]") {
  for (const Policy policy : block_policies) {
    const Program program = small_program(policy);
    for (std::size_t from = 0; from < program.ranks.size(); ++from) {
      for (std::size_t to = 0; to < program.ranks.size(); ++to) {
        for (const MessageLane lane : {MessageLane::urgent, MessageLane::bulk}) {
          const auto queue = [&](std::size_t rank, std::size_t peer, CommKind kind) {
            std::vector<std::pair<std::int32_t, std::uint32_t>> messages;
            for (const CommStep& step : program.ranks[rank].comm) {
              if (step.kind == kind && step.lane == lane && step.peer.index() == peer) {
                messages.emplace_back(step.message.value, step.segments.size());
              }
            }
            return messages;
          };
          const auto sent = queue(from, to, CommKind::send);
          REQUIRE(sent == queue(to, from, CommKind::receive));
          REQUIRE(std::is_sorted(sent.begin(), sent.end()));
        }
      }
    }
  }
}

TEST_CASE("posting receives further ahead costs slots and changes no order", "[cache]") {
  const Program late = small_program(Policy::cached, {.post_ahead = 0});
  const Program early = small_program(Policy::cached, {.post_ahead = 8});
  REQUIRE(peak(early, &RankProgram::num_value_slots) >= peak(late, &RankProgram::num_value_slots));
  for (std::size_t rank = 0; rank < late.ranks.size(); ++rank) {
    REQUIRE(late.ranks[rank].order == early.ranks[rank].order);
  }
}

TEST_CASE("naive keeps a copy per virtual stage, the others one per rank", "[cache]") {
  REQUIRE(peak(small_program(Policy::naive), &RankProgram::num_value_slots) >
          peak(small_program(Policy::cached), &RankProgram::num_value_slots));
}

TEST_CASE("receive buffers of all microbatches are never resident at once", "[cache]") {
  const DepthMap depth(32, 4, DepthMap::even_cuts(32, 16, 8));
  const auto slots = [&](int microbatches) {
    const Program program = lower(interleaved(Layout(4, 2, microbatches), 4), depth, Policy::cached);
    return std::pair{peak(program, &RankProgram::num_value_slots), peak(program, &RankProgram::num_gradient_slots)};
  };
  REQUIRE(slots(64) == slots(32));
}

TEST_CASE("a forward-only program has no gradients and frees each value after its last read", "[cache]") {
  const Program evaluation = small_program(Policy::cached, {}, true);
  const Program training = small_program(Policy::cached);
  for (const RankProgram& rank : evaluation.ranks) {
    REQUIRE(rank.num_gradient_slots == 0);
    for (const ComputeStep& step : rank.compute) {
      REQUIRE(step.compute.op == Op::forward);
    }
  }
  REQUIRE(peak(evaluation, &RankProgram::num_value_slots) < peak(training, &RankProgram::num_value_slots));
}

TEST_CASE("an arrived sum is added after this rank's own contributions, children in a fixed order", "[cache]") {
  Dice dice(6);
  for (int round = 0; round < 60; ++round) {
    const int pp = dice.roll(2, 4);
    const Layout layout(pp, dice.roll(1, 3), pp);
    const DepthMap depth = test::random_depth(dice, layout.num_chunks(), 24);
    const Program program = lower(interleaved(layout, pp), depth, Policy::direct);
    for (const RankProgram& rank : program.ranks) {
      std::vector<std::vector<std::pair<int, int>>> added(program.routing.holdings.size());
      for (const CommStep& step : rank.comm) {
        if (step.kind == CommKind::add) {
          const Holding& child = program.routing.holdings[step.holding.index()];
          const Message& message = program.messages[step.message.index()];
          added[child.parent.index()].emplace_back(message.microbatch.value, -child.bringer.value);
          REQUIRE(rank.segments_of(step.segments).size() == 2);
        }
      }
      for (auto& sums : added) {
        std::stable_sort(sums.begin(), sums.end(), [](auto a, auto b) { return a.first < b.first; });
        REQUIRE(std::is_sorted(sums.begin(), sums.end()));
      }
    }
  }
}

TEST_CASE("lowering refuses what cannot run with one line", "[cache]") {
  const Layout layout(2, 1, 2);
  const DepthMap depth(4, 2, {2, 4});
  Schedule schedule = one_f_one_b(layout);
  REQUIRE_THROWS_AS(lower(schedule, depth, Policy::cached, {.post_ahead = 65}), InputError);
  REQUIRE_THROWS_AS(lower(schedule, depth, Policy::standard), InputError);
  REQUIRE_THROWS_AS(lower(schedule, DepthMap(4, 2, {1, 2, 4}), Policy::cached), InputError);
  std::swap(schedule.ranks[1][0], schedule.ranks[1][1]);  // B before its F
  REQUIRE_THROWS_AS(lower(schedule, depth, Policy::cached), InputError);
}

TEST_CASE("a large program is the same from any number of threads", "[cache]") {
  const Layout layout(8, 2, 1024);
  const DepthMap depth(64, 4, DepthMap::even_cuts(64, 64, 16));
  const Schedule schedule = interleaved(layout, 8);
  const Program one = lower(schedule, depth, Policy::cached, {.num_threads = 1});
  REQUIRE(one.messages.size() > 150'000);  // enough for three
  CHECK(digest(lower(schedule, depth, Policy::cached, {.num_threads = 3})) == digest(one));
  CHECK(verify_program(one).empty());
}

TEST_CASE("small records keep their fields, and an index without room becomes one that no list reaches", "[cache]") {
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  const Wait wait(Wait::On::comm, most);
  CHECK(wait.on == Wait::On::comm);
  CHECK(wait.step == most);
  CHECK(Wait(Wait::On::compute, 7).step == 7);
  CHECK(Wait(Wait::On::compute, -1).step == most);
  CHECK_FALSE(Wait(Wait::On::comm, 7) == Wait(Wait::On::compute, 7));
  CHECK(StepRef(Wait(Wait::On::comm, 5)) == StepRef(true, 5));
  const Slot slot(SlotClass::gradient, 12345678);
  CHECK(slot.slot_class == SlotClass::gradient);
  CHECK(slot.index == 12345678);
  const Operand operand(Role::grad_partial_in, true, 87654321, BlockId(17));
  CHECK(operand.role == Role::grad_partial_in);
  CHECK(operand.first_touch);
  CHECK(slot_of(operand) == Slot(SlotClass::gradient, 87654321));
  CHECK(operand.block == BlockId(17));
  CHECK(Operand(Role::source, false, most, BlockId(1)).slot == (1U << 28U) - 1);
}
