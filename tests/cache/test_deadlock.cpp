// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "cache/support/edit.hpp"
#include "cache/support/naive_run.hpp"
#include "cache/support/programs.hpp"
#include "plumb/cache/deadlock.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/generators.hpp"
#include "support/catch.hpp"
#include "verify_names.hpp"

namespace plumb {
namespace {

using test::Dice;

std::string text_of(const DeadlockReport& report) {
  std::string text;
  for (const BlockedStep& step : report.cycle) {
    text += std::to_string(step.rank.value) + ":" + step.action + " ";
  }
  return text;
}

// 1F1B of a standard residual over two ranks: the smallest program with traffic both ways.
Program two_ranks(int microbatches) {
  const DepthMap depth(2, 2, {1, 2}, Residual::standard);
  return lower(one_f_one_b(Layout(2, 1, microbatches)), depth, Policy::standard);
}

Program ordered_by_own_use(Program program) {
  for (RankProgram& rank : program.ranks) {
    test::order_by_own_use(rank);
  }
  return program;
}

// Both ends of a message leave the program's lists, or only one of them.
void drop_end(Program& program, MessageId message, CommKind kind) {
  for (RankProgram& rank : program.ranks) {
    for (std::size_t i = 0; i < rank.comm.size(); ++i) {
      if (rank.comm[i].kind == kind && rank.comm[i].message == message) {
        test::drop(rank, {true, static_cast<std::int32_t>(i)});
        return;
      }
    }
  }
}

// Moves some steps of some ranks a little, anywhere: usually a bad program.
Program shaken(Program program, Dice& dice) {
  for (RankProgram& rank : program.ranks) {
    if (rank.order.size() < 2 || dice.roll(0, 2) == 0) continue;
    std::vector<StepRef> order = rank.order;
    for (int swaps = dice.roll(1, 6); swaps > 0; --swaps) {
      const auto a = static_cast<std::size_t>(dice.roll(0, static_cast<int>(order.size()) - 2));
      const auto b = std::min(order.size() - 1, a + static_cast<std::size_t>(dice.roll(1, 8)));
      if (order[a].comm && order[b].comm) std::swap(order[a], order[b]);
    }
    test::reorder(rank, order);
  }
  return program;
}

bool is_one_of(const Program& program, const std::set<std::pair<std::size_t, std::size_t>>& steps,
               const BlockedStep& step) {
  return std::any_of(steps.begin(), steps.end(), [&](const auto& place) {
    const auto [rank, position] = place;
    return rank == step.rank.index() &&
           step_token(program, step.rank, program.ranks[rank].order[position]) == step.action;
  });
}

}  // namespace

TEST_CASE("every lowered program passes every channel model", "[cache][deadlock]") {
  Dice dice(31);
  for (int trial = 0; trial < 400; ++trial) {
    const Program program = test::random_program(dice);
    INFO(test::describe(program));
    for (const ChannelModel model : all_channel_models()) {
      const DeadlockReport report = check_deadlock(program, model);
      INFO(to_string(model) << " " << text_of(report));
      REQUIRE_FALSE(report.deadlock);
      REQUIRE(report.cycle.empty());
      REQUIRE(report.model == model);
    }
  }
}

TEST_CASE("opposite sends block each other where both directions share a queue or posts block", "[cache][deadlock]") {
  const Program program = ordered_by_own_use(two_ranks(2));
  for (const ChannelModel model : {ChannelModel::shared_fifo, ChannelModel::rendezvous}) {
    const DeadlockReport report = check_deadlock(program, model);
    CHECK(report.deadlock);
    CHECK(text_of(report) == "0:0SEND_F1 1:1SEND_B0 ");
  }
  for (const ChannelModel model : {ChannelModel::buffered, ChannelModel::fifo_per_edge, ChannelModel::fifo_per_pair}) {
    CHECK_FALSE(check_deadlock(program, model).deadlock);
  }
}

TEST_CASE("a receive that nobody serves is named alone", "[cache][deadlock]") {
  for (const ChannelModel model : all_channel_models()) {
    Program program = two_ranks(1);
    drop_end(program, MessageId(1), CommKind::send);
    const DeadlockReport report = check_deadlock(program, model);
    CHECK(report.deadlock);
    CHECK(text_of(report) == "0:0RECV_B0 ");
    CHECK(report.unmatched);
  }
}

TEST_CASE("a send that nobody receives blocks unless sends are buffered", "[cache][deadlock]") {
  for (const ChannelModel model : all_channel_models()) {
    Program program = two_ranks(1);
    drop_end(program, MessageId(1), CommKind::receive);
    const DeadlockReport report = check_deadlock(program, model);
    CHECK(report.deadlock == (model != ChannelModel::buffered));
    CHECK(text_of(report) == (report.deadlock ? "1:1SEND_B0 " : ""));
  }
}

TEST_CASE("a step that waits for a later one of its own rank is a cycle", "[cache][deadlock]") {
  Program program = two_ranks(1);
  RankProgram& rank = program.ranks[0];
  // The send of F waits for the backward, whose gradient comes only after that send.
  const auto send = static_cast<std::size_t>(*test::find(rank, CommKind::send));
  rank.comm[send].waits = {static_cast<std::uint32_t>(rank.waits.size()),
                           static_cast<std::uint32_t>(rank.waits.size()) + 1};
  rank.waits.push_back({Wait::On::compute, 1});
  for (const ChannelModel model : {ChannelModel::buffered, ChannelModel::fifo_per_edge, ChannelModel::single_stream}) {
    const DeadlockReport report = check_deadlock(program, model);
    CHECK(report.deadlock);
    CHECK(text_of(report) == "0:0B0 0:0RECV_B0 1:1SEND_B0 1:1F0 1:1RECV_F0 0:0SEND_F0 ");
    CHECK_FALSE(report.unmatched);
  }
}

TEST_CASE("a tagless queue does not stop at swapped receives, which is why their order is verified",
          "[cache][deadlock]") {
  Program program = two_ranks(2);
  RankProgram& rank = program.ranks[0];
  const std::int32_t first = *test::find(rank, CommKind::receive);
  const std::int32_t second = *test::find(rank, CommKind::receive, first + 1);
  std::swap(rank.comm[static_cast<std::size_t>(first)].message, rank.comm[static_cast<std::size_t>(second)].message);
  CHECK_FALSE(check_deadlock(program, ChannelModel::fifo_per_pair).deadlock);
  CHECK_FALSE(verify_program(program).empty());
}

TEST_CASE("the verdict is that of a naive run, for good programs and bad ones", "[cache][deadlock]") {
  Dice dice(32);
  int deadlocks[6] = {};
  for (int trial = 0; trial < 400; ++trial) {
    Program program = test::random_program(dice, {.pp = 4, .vp = 3, .sublayers = 16, .microbatches = 4});
    switch (dice.roll(0, 3)) {
      case 0:
        program = ordered_by_own_use(program);
        break;
      case 1:
        if (!program.messages.empty()) {
          drop_end(program, MessageId(dice.roll(0, static_cast<int>(program.messages.size()) - 1)),
                   dice.roll(0, 1) == 0 ? CommKind::send : CommKind::receive);
        }
        break;
      default:
        program = shaken(program, dice);
    }
    INFO(test::describe(program));
    for (const ChannelModel model : all_channel_models()) {
      const auto stuck = test::stuck_steps(program, model);
      const DeadlockReport report = check_deadlock(program, model);
      INFO(to_string(model) << " " << text_of(report));
      REQUIRE(report.deadlock == !stuck.empty());
      REQUIRE(report.cycle.empty() == stuck.empty());
      for (const BlockedStep& step : report.cycle) {
        REQUIRE(is_one_of(program, stuck, step));
      }
      deadlocks[static_cast<std::size_t>(model)] += report.deadlock ? 1 : 0;
    }
  }
  for (const ChannelModel model : all_channel_models()) {
    INFO(to_string(model));
    CHECK(deadlocks[static_cast<std::size_t>(model)] > 20);
    CHECK(deadlocks[static_cast<std::size_t>(model)] < 380);
  }
}

TEST_CASE("channel models have names that are read back", "[cache][deadlock]") {
  CHECK(all_channel_models().size() == 6);
  for (const ChannelModel model : all_channel_models()) {
    CHECK(parse_channel_model(to_string(model)) == model);
  }
  CHECK(to_string(ChannelModel::fifo_per_edge) == "fifo-per-edge");
  CHECK_THROWS_AS(parse_channel_model("fifo"), InputError);
}

TEST_CASE("a program with a wrong index is refused, not run", "[cache][deadlock]") {
  Program program = two_ranks(1);
  program.ranks[1].waits.front().step = 1000;
  CHECK_THROWS_AS(check_deadlock(program, ChannelModel::buffered), InputError);
}

}  // namespace plumb
