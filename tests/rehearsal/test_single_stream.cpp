// SPDX-License-Identifier: Apache-2.0
// Poorer links: emulated and simulated they must be the same links.
#include <algorithm>
#include <map>
#include <vector>

#include "cache/support/programs.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/rehearsal/launch.hpp"
#include "plumb/rehearsal/report.hpp"
#include "plumb/schedule/named.hpp"
#include "support/catch.hpp"
#include "wire_model.hpp"

using namespace plumb;
using namespace plumb::test;
using namespace std::chrono_literals;
using plumb::comm::WireModel;

namespace {

constexpr SlotShape stream_slots{1, 512, Storage::fp32};
constexpr SimOptions on_one_stream{.order = ChannelOrder::single_stream, .duplex = Duplex::half};

CostModel costs_of(SimTime action, SimTime unit, SimTime latency) {
  const auto gradient = static_cast<std::int64_t>(stream_slots.gradient_bytes());
  const UnitBytes bytes{static_cast<std::int64_t>(stream_slots.value_bytes()), gradient, gradient};
  return CostModel(action_times(action, action, action), link_from_unit_time(latency, unit, bytes), bytes);
}

RehearsalPlan stream_plan_of(Program program, SimTime action, SimTime unit) {
  RehearsalPlan plan{.program = std::make_shared<const Program>(std::move(program)),
                     .costs = costs_of(action, unit, SimTime(0)),
                     .shape = stream_slots};
  plan.steps = 2;
  plan.wait_limit = 20s;
  plan.single_stream = true;
  return plan;
}

bool crosses(const CommStep& step) { return step.kind == CommKind::send || step.kind == CommKind::receive; }

std::int64_t ns(SimTime time) { return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count(); }

// When the emulated wires start each message, if its ends are posted as soon as they are ready in the simulation. A
// rank posts the messages of one peer, lane and way in the order of its list.
std::vector<std::int64_t> started_by_wires(const Program& program, const Timeline& timeline, const LinkShape& shape,
                                           std::int64_t unit_ns) {
  struct Post {
    std::int64_t at;
    RankId rank;
    const CommStep* step;
    std::uint64_t turn;
  };
  std::vector<Post> posts;
  const int num_ranks = program.layout.pp();
  for (RankId rank{0}; rank.value < num_ranks; rank = rank.next()) {
    std::vector<std::int64_t> last(static_cast<std::size_t>(num_ranks) * 4, 0);
    std::uint64_t turn = 0;
    for (const CommStep& step : program.ranks[rank.index()].comm) {
      if (!crosses(step)) continue;
      const bool sends = step.kind == CommKind::send;
      const MessageTimes& times = timeline.messages[step.message.index()];
      std::int64_t& before = last[step.peer.index() * 4 + (step.lane == MessageLane::bulk ? 2 : 0) + (sends ? 1 : 0)];
      before = std::max(before, ns(sends ? times.send_ready : times.posted));
      posts.push_back({before, rank, &step, turn++});
    }
  }
  std::stable_sort(posts.begin(), posts.end(), [](const Post& a, const Post& b) { return a.at < b.at; });
  const std::size_t bytes_needed = WireModel::bytes_needed(num_ranks, program.messages.size());
  std::vector<std::byte> block(bytes_needed + 64);
  std::byte* const aligned = block.data() + (64 - reinterpret_cast<std::uintptr_t>(block.data()) % 64) % 64;
  WireModel wires(aligned, true, num_ranks, program.messages.size(), shape);
  for (const Post& post : posts) {
    const bool sends = post.step->kind == CommKind::send;
    const PeerId here{post.rank.value}, there{post.step->peer.value};
    const auto units = static_cast<std::int64_t>(timeline.messages[post.step->message.index()].units);
    REQUIRE(wires.post(post.at, sends ? here : there, sends ? there : here,
                       post.step->lane == MessageLane::urgent ? Lane::urgent : Lane::bulk, sends,
                       static_cast<std::uint32_t>(post.step->message.value), static_cast<std::size_t>(units * unit_ns),
                       post.turn));
  }
  const std::int64_t end = ns(timeline.step) + 1;
  wires.advance(end);
  std::vector<std::int64_t> started(program.messages.size(), -1);
  for (int rank = 0; rank < num_ranks; ++rank) {
    while (const auto completion = wires.take(PeerId{rank}, end))
      started[completion->ticket] = completion->times.started.count();
  }
  return started;
}

}  // namespace

TEST_CASE("on one stream per rank emulated links start every message when the simulator does", "[rehearsal]") {
  Dice dice(71);
  for (int round = 0; round < 60; ++round) {
    const Program program = random_program(dice, {.pp = 5, .vp = 3, .sublayers = 24, .microbatches = 6});
    INFO("round " << round << ": " << describe(program));
    const SimTime unit = std::chrono::nanoseconds(dice.roll(1, 2000));
    const SimTime latency = std::chrono::nanoseconds(dice.roll(0, 500));
    const Timeline timeline = simulate(program, costs_of(1us, unit, latency), on_one_stream);
    const LinkShape shape{.latency = std::chrono::nanoseconds(ns(latency)), .ns_per_byte = 1, .single_stream = true};
    std::vector<std::int64_t> expected;
    for (const MessageTimes& times : timeline.messages)
      expected.push_back(ns(times.start));
    REQUIRE(started_by_wires(program, timeline, shape, ns(unit)) == expected);
  }
}

TEST_CASE("a rehearsal on one stream per rank ends, mismatches nowhere and runs one message at a time", "[rehearsal]") {
  Dice dice(72);
  for (int round = 0; round < 16; ++round) {
    Program drawn = random_program(dice, {.pp = 4, .vp = 3, .sublayers = 20, .microbatches = 5});
    INFO("round " << round << ": " << describe(drawn));
    if (drawn.layout.pp() == 1) continue;
    RehearsalPlan plan = stream_plan_of(std::move(drawn), 20us, 10us);
    plan.baseline = round % 2 == 0 ? plan.program : nullptr;
    plan.longest_extra = round % 4 < 2 ? 100us : 0us;
    const RehearsalReport report = make_report(plan, rehearse_on_threads(plan), on_one_stream);
    CHECK(report.first_mismatch == "");
    CHECK(report.num_mismatches == 0);
    CHECK(report.wire_bytes == report.formula_bytes);
    const Program& program = *plan.program;
    for (const RankProgram& rank : program.ranks) {
      SimTime free{0};
      for (const CommStep& step : rank.comm) {
        if (!crosses(step)) continue;
        const MessageTimes& times = report.timeline.messages[step.message.index()];
        CHECK(times.start >= free);
        free = times.start + 10us * times.units;
      }
    }
  }
}

TEST_CASE("one stream per rank costs in a rehearsal what the simulator says", "[rehearsal]") {
  const Layout layout(4, 2, 8);
  ScheduleRequest request;
  request.kind = ScheduleKind::interleaved;
  const DepthMap depth(8, 1, DepthMap::even_cuts(8, 8, 8));
  LowerOptions options;
  options.costs.duplex = Duplex::half;
  RehearsalPlan plan = stream_plan_of(lower(make_schedule(request, layout), depth, Policy::relay, options), 1ms, 1ms);
  const double on_lanes = to_us(simulate(*plan.program, plan.costs).step);
  const RehearsalReport report = make_report(plan, rehearse_on_threads(plan), on_one_stream);
  INFO("on lanes " << on_lanes << " us, predicted " << to_us(report.predicted.step) << ", measured "
                   << report.program.median_us);
  // Far enough from what lanes would do for a busy machine not to blur it.
  REQUIRE(to_us(report.predicted.step) > 1.3 * on_lanes);
  CHECK(report.program.median_us > 0.97 * to_us(report.predicted.step));
  CHECK(report.program.median_us < 2 * to_us(report.predicted.step));
}

TEST_CASE("lanes merged into one queue per edge run each edge in the order of the program", "[rehearsal]") {
  Dice dice(73);
  for (int round = 0; round < 8; ++round) {
    Program program = random_program(dice, {.pp = 4, .vp = 3, .sublayers = 20, .microbatches = 5});
    INFO("round " << round << ": " << describe(program));
    if (program.layout.pp() == 1) continue;
    for (Transfer& transfer : program.routing.transfers)
      transfer.lane = MessageLane::urgent;
    for (RankProgram& rank : program.ranks) {
      for (CommStep& step : rank.comm)
        step.lane = MessageLane::urgent;
    }
    RehearsalPlan plan = stream_plan_of(std::move(program), 20us, 10us);
    plan.single_stream = false;
    const RehearsalReport report = make_report(plan, rehearse_on_threads(plan), {.order = ChannelOrder::fifo_merged});
    CHECK(report.first_mismatch == "");
    for (const RankProgram& rank : plan.program->ranks) {
      std::map<std::pair<RankId, CommKind>, SimTime> last;
      for (const CommStep& step : rank.comm) {
        if (!crosses(step)) continue;
        SimTime& before = last[{step.peer, step.kind}];
        const SimTime start = report.timeline.messages[step.message.index()].start;
        CHECK(start >= before);
        before = start;
      }
    }
  }
}
