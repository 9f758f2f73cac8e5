// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <utility>

#include "cache/support/faults.hpp"
#include "cache/support/naive_order.hpp"
#include "plumb/cache/encode.hpp"
#include "plumb/schedule/error.hpp"
#include "support/catch.hpp"
#include "support/sanitized.hpp"
#include "verify_order.hpp"

namespace plumb {
namespace {

using test::contains;
using test::Dice;
using test::faults_of;
using test::must_be_found;

}  // namespace

TEST_CASE("what has certainly finished is what a search over all events says", "[cache][verify]") {
  Dice dice(43);
  for (int trial = 0; trial < 40; ++trial) {
    Program program = test::random_program(dice, {.pp = 3, .vp = 2, .sublayers = 10, .microbatches = 3});
    for (RankProgram& rank : program.ranks) {
      // Without some of its waits, so that there is something to be unsure about.
      for (CommStep& step : rank.comm) {
        if (step.waits.size() > 0 && dice.roll(0, 3) == 0) step.waits.begin += 1;
      }
      const test::NaiveOrder expected(rank);
      RankOrder order(rank);
      for (std::size_t a = 0; a < rank.order.size(); ++a) {
        for (std::size_t b = 0; b < rank.order.size(); ++b) {
          if (order.finished_before(rank.order[a], rank.order[b]) != expected.ended_before(a, b)) {
            FAIL(test::describe(program) << ": positions " << a << " and " << b);
          }
        }
      }
    }
  }
}

TEST_CASE("a dropped wait is found exactly if two uses of a slot may then overlap", "[cache][verify]") {
  Dice dice(44);
  int races = 0;
  int harmless = 0;
  for (int trial = 0; trial < 60; ++trial) {
    Program program = test::random_program(dice, {.pp = 3, .vp = 2, .sublayers = 10, .microbatches = 3});
    INFO(test::describe(program));
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      for (int attempt = 0; attempt < 6; ++attempt) {
        RankProgram& rank = program.ranks[r];
        const RankProgram intact = rank;
        const StepRef step =
            rank.order[static_cast<std::size_t>(dice.roll(0, static_cast<int>(rank.order.size()) - 1))];
        const auto index = static_cast<std::size_t>(step.index);
        Range& waits = step.comm ? rank.comm[index].waits : rank.compute[index].waits;
        if (waits.size() == 0) continue;
        const auto dropped = waits.begin + static_cast<std::uint32_t>(dice.roll(0, static_cast<int>(waits.size()) - 1));
        std::swap(rank.waits[dropped], rank.waits[waits.begin]);
        waits.begin += 1;
        const std::string faults = faults_of(program);
        INFO(faults);
        if (test::has_race(rank)) {
          ++races;
          REQUIRE(contains(faults, "without waiting for"));
        } else {
          ++harmless;
          REQUIRE_FALSE(contains(faults, "without waiting for"));
        }
        rank = intact;
      }
    }
  }
  CHECK(races > 300);
  CHECK(harmless > 20);
}

TEST_CASE("a release that comes too early, twice or never is found", "[cache][verify]") {
  must_be_found("nothing releases", 60, [](Program& program, Dice& dice) {
    RankProgram& rank = program.ranks[static_cast<std::size_t>(dice.roll(0, program.layout.pp() - 1))];
    // The last step with a release: nobody takes its slots again.
    for (std::size_t i = rank.order.size(); i-- > 0;) {
      const auto index = static_cast<std::size_t>(rank.order[i].index);
      Range& releases = rank.order[i].comm ? rank.comm[index].releases : rank.compute[index].releases;
      if (releases.size() == 0) continue;
      releases.end -= 1;
      return true;
    }
    return false;
  });
  must_be_found("or has released", 60, [](Program& program, Dice& dice) {
    RankProgram& rank = program.ranks[static_cast<std::size_t>(dice.roll(0, program.layout.pp() - 1))];
    if (rank.releases.size() < 2 || rank.releases.back().slot == rank.releases.front().slot) return false;
    rank.releases.back().slot = rank.releases.front().slot;
    return true;
  });
  must_be_found("may still use", 60, [](Program& program, Dice& dice) {
    RankProgram& rank = program.ranks[static_cast<std::size_t>(dice.roll(0, program.layout.pp() - 1))];
    for (Release& release : rank.releases) {
      if (release.waits.size() == 0 || dice.roll(0, 3) > 0) continue;
      release.waits = {};
      if (contains(faults_of(program), "may still use")) return true;
    }
    return false;
  });
}

TEST_CASE("indices beyond their lists are named, not followed", "[cache][verify]") {
  const Program good = test::small_program(Policy::cached);
  const auto broken = [&](const std::function<void(Program&)>& change) {
    Program program = good;
    change(program);
    return faults_of(program);
  };
  CHECK(contains(broken([](Program& p) { p.ranks.pop_back(); }), "has 8 chunks and 3 ranks"));
  CHECK(contains(broken([](Program& p) { p.routing.holdings[2].parent.value = 10000; }), "holding 2"));
  CHECK(contains(broken([](Program& p) { p.routing.transfers[1].to.value = 4; }), "transfer 1"));
  CHECK(contains(broken([](Program& p) { p.routing.root.pop_back(); }), "roots"));
  CHECK(contains(broken([](Program& p) { p.routing.into_chunk[0].push_back(TransferId(-1)); }), "lists of transfers"));
  CHECK(contains(broken([](Program& p) { p.messages[3].microbatch.value = 8; }), "message 3 names"));
  CHECK(contains(broken([](Program& p) { p.ranks[1].num_value_slots = INT32_MAX; }), "asks for 2147483647 slots"));
  CHECK(contains(broken([](Program& p) { p.ranks[1].num_value_slots = -1; }), "asks for -1 slots"));
  CHECK(contains(broken([](Program& p) { p.ranks[1].order.pop_back(); }), "the common order holds"));
  CHECK(contains(broken([](Program& p) { p.ranks[1].order[5].index = 99; }), "no merge"));
  CHECK(contains(broken([](Program& p) { p.ranks[1].compute[4].compute.chunk.value = -1; }), "compute step 4"));
  CHECK(contains(broken([](Program& p) { p.ranks[1].compute[4].waits.end = 1u << 31; }), "waits for a step"));
  CHECK(contains(broken([](Program& p) { p.ranks[1].compute[4].operands = {5, 4}; }), "operands lie outside"));
  CHECK(contains(broken([](Program& p) { p.ranks[1].operands[0].slot = 1000; }), "slot 1000 does not exist"));
  CHECK(contains(broken([](Program& p) { p.ranks[1].comm[0].message.value = -1; }), "its message does not exist"));
  CHECK(contains(broken([](Program& p) { p.ranks[1].comm[0].peer.value = 4; }), "its peer does not exist"));
  CHECK(contains(broken([](Program& p) { p.ranks[1].comm[0].segments.end = 1u << 31; }), "segments lie outside"));
  CHECK(contains(broken([](Program& p) { p.ranks[1].releases[0].slot.index = 12345; }), "releases slot 12345"));
  CHECK(contains(broken([](Program& p) { p.ranks[1].waits[0].step = 99999; }), "does not exist"));
}

TEST_CASE("a computation overlaps the next only as F with B or I", "[cache][verify]") {
  const Program program = test::small_program(Policy::cached);
  for (std::size_t i = 0; i < program.ranks[1].compute.size(); ++i) {
    Program broken = program;
    std::vector<ComputeStep>& steps = broken.ranks[1].compute;
    steps[i].overlaps_next = true;
    const bool legal = steps[i].compute.op == Op::forward && i + 1 < steps.size() &&
                       (steps[i + 1].compute.op == Op::backward || steps[i + 1].compute.op == Op::backward_input) &&
                       (steps[i + 1].compute.chunk != steps[i].compute.chunk ||
                        steps[i + 1].compute.microbatch != steps[i].compute.microbatch);
    CHECK(verify_program(broken).empty() == legal);
  }
}

TEST_CASE("only an add touches something first", "[cache][verify]") {
  const Program program = test::small_program(Policy::cached);
  std::size_t num_others = 0;
  for (std::size_t i = 0; i < program.ranks[1].comm.size(); ++i) {
    Program broken = program;
    CommStep& step = broken.ranks[1].comm[i];
    if (step.kind == CommKind::add) continue;
    ++num_others;
    step.first_touch = true;
    REQUIRE_FALSE(verify_program(broken).empty());
  }
  CHECK(num_others > 0);
}

TEST_CASE("no more faults are reported than asked for", "[cache][verify]") {
  Program program = test::small_program(Policy::cached);
  for (RankProgram& rank : program.ranks) {
    for (CommStep& step : rank.comm) {
      step.waits = {};
    }
  }
  CHECK(verify_program(program, 3).size() == 3);
  CHECK(verify_program(program).size() == 20);
}

TEST_CASE("whatever a reader accepts can be verified and run", "[cache][verify]") {
  Dice dice(45);
  const std::string json =
      program_to_json(test::random_program(dice, {.pp = 3, .vp = 2, .sublayers = 8, .microbatches = 2}));
  int faulty = 0;
  int sound = 0;
  const int num_trials = test::rounds(3000, 600);
  for (int trial = 0; trial < num_trials; ++trial) {
    std::string damaged = json;
    for (int digits = dice.roll(1, 2); digits > 0; --digits) {
      const auto from = static_cast<std::size_t>(dice.roll(0, static_cast<int>(json.size()) - 1));
      const std::size_t at = damaged.find_first_of("0123456789", from);
      if (at != std::string::npos) damaged[at] = static_cast<char>('0' + dice.roll(0, 9));
    }
    try {
      const Program program = program_from_json(damaged);
      ++(verify_program(program).empty() ? sound : faulty);
      for (const ChannelModel model : all_channel_models()) {
        const DeadlockReport report = check_deadlock(program, model);
        CHECK(report.deadlock == !report.cycle.empty());
      }
    } catch (const InputError&) {
      continue;
    }
  }
  CHECK(faulty > num_trials / 15);
  CHECK(sound > 0);
}

}  // namespace plumb
