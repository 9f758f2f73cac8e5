// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <memory>

#include "cache/support/programs.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/rehearsal/launch.hpp"
#include "plumb/rehearsal/report.hpp"
#include "plumb/runtime/interpreter.hpp"
#include "plumb/runtime/run_error.hpp"
#include "plumb/schedule/named.hpp"
#include "support/catch.hpp"
#include "support/jitter_transport.hpp"

using namespace plumb;
using namespace plumb::test;
using namespace std::chrono_literals;

namespace {

constexpr SlotShape small_slots{1, 512, Storage::fp32};

UnitBytes bytes_of(const SlotShape& shape) {
  const auto gradient = static_cast<std::int64_t>(shape.gradient_bytes());
  return {static_cast<std::int64_t>(shape.value_bytes()), gradient, gradient};
}

CostModel costs_of(const SlotShape& shape, SimTime action, SimTime unit, SimTime latency = SimTime(0)) {
  const UnitBytes bytes = bytes_of(shape);
  return CostModel(action_times(action, action, action), link_from_unit_time(latency, unit, bytes), bytes);
}

RehearsalPlan plan_of(Program program, SimTime action = 200us, SimTime unit = 20us) {
  RehearsalPlan plan{.program = std::make_shared<const Program>(std::move(program)),
                     .costs = costs_of(small_slots, action, unit),
                     .shape = small_slots};
  plan.steps = 2;
  plan.wait_limit = 20s;
  return plan;
}

Program aligned_program(Policy policy, const Layout& layout, ScheduleKind kind) {
  const int chunks = layout.num_chunks();
  const DepthMap depth(2 * chunks, 2, DepthMap::even_cuts(2 * chunks, 2 * chunks, chunks),
                       policy == Policy::standard ? Residual::standard : Residual::attnres_block);
  ScheduleRequest request;
  request.kind = kind;
  return lower(make_schedule(request, layout), depth, policy);
}

Layout layout_for(ScheduleKind kind) {
  const bool two =
      placement_of(kind) == Placement::vee || kind == ScheduleKind::interleaved || kind == ScheduleKind::looped_bfs;
  return Layout(3, two ? 2 : 1, 6, placement_of(kind));
}

void expect_sound(const RehearsalPlan& plan, const RehearsalReport& report) {
  CHECK(report.first_mismatch == "");
  CHECK(report.num_mismatches == 0);
  CHECK(report.num_checked > 0);
  CHECK(report.wire_bytes == report.formula_bytes);
  CHECK(report.simulated_bytes == report.formula_bytes);
  CHECK(report.measured.traffic_equals_formula);
  CHECK(report.measured.memory_within_slots);
  // A sleep never ends early, so no rank can be faster than its own computations.
  SimTime busiest{0};
  for (const RankReport& rank : report.predicted.ranks)
    busiest = std::max(busiest, rank.busy);
  for (const double us : report.program.all_us)
    CHECK(us >= to_us(busiest));
  static_cast<void>(plan);
}

}  // namespace

TEST_CASE("a rehearsal of every schedule and policy reads what was written and counts the formula's bytes",
          "[rehearsal]") {
  for (const ScheduleKind kind : all_schedule_kinds()) {
    for (const Policy policy : {Policy::standard, Policy::naive, Policy::relay, Policy::cached, Policy::direct}) {
      INFO(to_string(kind) << " " << to_string(policy));
      const Layout layout = layout_for(kind);
      RehearsalPlan plan = plan_of(aligned_program(policy, layout, kind));
      if (policy != Policy::standard) {
        plan.baseline = std::make_shared<const Program>(aligned_program(Policy::standard, layout, kind));
      }
      const auto outcomes = rehearse_on_threads(plan);
      const RehearsalReport report = make_report(plan, outcomes);
      expect_sound(plan, report);
      CHECK(report.overhead.has_value() == (policy != Policy::standard));
    }
  }
}

TEST_CASE("random programs with random delays everywhere mismatch nowhere", "[rehearsal]") {
  Dice dice(5);
  for (int round = 0; round < 25; ++round) {
    Program program = random_program(dice, {.pp = 4, .vp = 3, .sublayers = 20, .microbatches = 5});
    INFO("round " << round << ": " << describe(program));
    if (program.layout.pp() == 1) continue;
    RehearsalPlan plan = plan_of(std::move(program), 1us, 2us);
    plan.longest_extra = 200us;
    plan.seed = static_cast<std::uint64_t>(round);
    LaunchOptions options;
    options.emulate_links = round % 2 == 0;
    options.in_front = [&](Transport& inner) {
      return std::make_unique<testing::JitterTransport>(
          inner, testing::JitterOptions{.seed = plan.seed, .longest_delay = 100us});
    };
    const RehearsalReport report = make_report(plan, rehearse_on_threads(plan, options));
    expect_sound(plan, report);
  }
}

// By hand: PLUMB_SOAK_MESSAGES=1000000 test_rehearsal "[.soak]"
TEST_CASE("a million messages with random delays mismatch nowhere", "[.soak]") {
  const char* const wanted = std::getenv("PLUMB_SOAK_MESSAGES");
  const std::int64_t least = wanted == nullptr ? 1'000'000 : std::atoll(wanted);
  Dice dice(17);
  std::int64_t num_messages = 0;
  std::int64_t num_checked = 0;
  int num_programs = 0;
  while (num_messages < least) {
    Program program = random_program(dice, {.pp = 8, .vp = 4, .sublayers = 40, .microbatches = 16});
    if (program.layout.pp() == 1) continue;
    INFO(describe(program));
    RehearsalPlan plan = plan_of(std::move(program), SimTime(0), 1us);
    plan.steps = 10;
    plan.longest_extra = 20us;
    plan.seed = static_cast<std::uint64_t>(num_programs);
    LaunchOptions options;
    options.emulate_links = num_programs % 4 == 0;
    options.in_front = [&](Transport& inner) {
      return std::make_unique<testing::JitterTransport>(
          inner, testing::JitterOptions{.seed = plan.seed, .longest_delay = 5us});
    };
    const RehearsalReport report = make_report(plan, rehearse_on_threads(plan, options));
    REQUIRE(report.first_mismatch == "");
    REQUIRE(report.num_mismatches == 0);
    REQUIRE(report.wire_bytes == report.formula_bytes);
    num_messages += report.num_messages;
    num_checked += report.num_checked;
    ++num_programs;
  }
  WARN(num_messages << " messages of " << num_programs << " programs, " << num_checked << " values and sums checked");
}

TEST_CASE("a block with the stamp of another step is found", "[rehearsal]") {
  for (const Policy policy : block_policies) {
    RehearsalPlan plan = plan_of(aligned_program(policy, Layout(3, 2, 6), ScheduleKind::interleaved));
    LaunchOptions options;
    options.prepare = [](RankId, Play& play) { play.wrong_stamp_at = Compute{Op::forward, ChunkId(1), Microbatch(2)}; };
    const RehearsalReport report = make_report(plan, rehearse_on_threads(plan, options));
    CHECK(report.num_mismatches > 0);
    CHECK_THAT(report.first_mismatch, Catch::Contains("microbatch 2, chunk 1"));
  }
}

TEST_CASE("a stall names the rank whose next action had its inputs ready", "[rehearsal]") {
  RehearsalPlan plan = plan_of(aligned_program(Policy::cached, Layout(3, 2, 6), ScheduleKind::interleaved));
  plan.wait_limit = 300ms;
  LaunchOptions options;
  options.prepare = [](RankId, Play& play) {
    play.hangs_at = Compute{Op::forward, ChunkId(1), Microbatch(2)};
    play.hang = 1500ms;
  };
  try {
    rehearse_on_threads(plan, options);
    FAIL("a stall must throw");
  } catch (const StallError& error) {
    CHECK_THAT(error.what(),
               Catch::Contains("the first rank whose next action had its inputs ready is rank 1: in 1F2"));
  }
}

TEST_CASE("communication that waits for computation and one lane still deliver everything", "[rehearsal]") {
  RehearsalPlan plan = plan_of(aligned_program(Policy::cached, Layout(4, 2, 8), ScheduleKind::interleaved));
  plan.communication_waits_for_compute = true;
  expect_sound(plan, make_report(plan, rehearse_on_threads(plan)));
}

namespace {

// Which sends a rank starts in which order.
class SendOrder final : public StepObserver {
 public:
  void message_starting(RankId rank, const MessageEvent& event) override {
    if (event.sends && event.what.direction == Direction::backward) {
      starts_.push_back({rank, event.what.microbatch, event.lane});
    }
  }
  // Pairs of one rank and microbatch, and in how many of them the bulk message started first.
  std::pair<int, int> pairs() const {
    int all = 0;
    int wrong = 0;
    for (std::size_t late = 0; late < starts_.size(); ++late) {
      for (std::size_t early = 0; early < late; ++early) {
        const Start& a = starts_[early];
        const Start& b = starts_[late];
        if (a.rank != b.rank || a.microbatch != b.microbatch || a.lane == b.lane) continue;
        ++all;
        wrong += a.lane == MessageLane::bulk ? 1 : 0;
      }
    }
    return {all, wrong};
  }

 private:
  struct Start {
    RankId rank;
    Microbatch microbatch;
    MessageLane lane;
  };
  std::vector<Start> starts_;
};

}  // namespace

TEST_CASE("what an urgent message waits for is added before bulk messages take the wire", "[rehearsal]") {
  // One chunk per rank: its backward completes the sums of both messages; the urgent one also needs an addition.
  const auto program =
      std::make_shared<const Program>(aligned_program(Policy::cached, Layout(4, 1, 8), ScheduleKind::one_f_one_b));
  const CostModel costs = costs_of(small_slots, 1us, 1us);
  Play play;
  play.program = program.get();
  play.costs = &costs;
  std::vector<std::unique_ptr<RehearsalStage>> stages;
  StageTable table;
  for (int chunk = 0; chunk < 4; ++chunk) {
    stages.push_back(std::make_unique<RehearsalStage>(RankId(chunk), ChunkId(chunk), play));
    table.push_back(stages.back().get());
  }
  SendOrder order;
  interpret_single_thread(program, table, small_slots, {.observer = &order});
  const auto [pairs, wrong] = order.pairs();
  CHECK(pairs >= 8);
  CHECK(wrong == 0);
  CHECK(play.first_mismatch == "");
}

TEST_CASE("an outcome survives the way from rank to rank", "[rehearsal]") {
  RehearsalPlan plan = plan_of(aligned_program(Policy::cached, Layout(2, 1, 3), ScheduleKind::one_f_one_b));
  const std::vector<RankOutcome> outcomes = rehearse_on_threads(plan);
  const std::string bytes = to_bytes(outcomes[1]);
  CHECK(to_bytes(outcome_from_bytes(bytes)) == bytes);
  CHECK_THROWS(outcome_from_bytes(std::string_view(bytes).substr(0, bytes.size() - 1)));
}

TEST_CASE("the memory a rehearsal needs is that of its slots", "[rehearsal]") {
  const Program program = aligned_program(Policy::naive, Layout(4, 2, 8), ScheduleKind::interleaved);
  std::int64_t slots = 0;
  for (const RankProgram& rank : program.ranks)
    slots += rank.num_value_slots + rank.num_gradient_slots;
  RehearsalPlan plan = plan_of(program);
  const std::int64_t small = memory_needed_bytes(plan);
  plan.shape.width *= 1000;
  CHECK(memory_needed_bytes(plan) - small == slots * 999 * 2048);
}
