// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "cache/support/edit.hpp"
#include "cache/support/programs.hpp"
#include "comm_groups.hpp"
#include "plumb/cache/deadlock.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/simulator/exposure.hpp"
#include "plumb/simulator/network.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/simulate.hpp"
#include "simulator/support/models.hpp"
#include "simulator/support/networks.hpp"
#include "simulator/support/timelines.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

// One value takes so long alone on a card. REQUIRES a power of ten or twice or five times one.
double rate_of(SimTime unit) {
  return static_cast<double>(storage_bytes.value) * 1e12 / static_cast<double>(unit.count());
}

// Forward-only, one message per microbatch and hop, one unit each.
Program relay_of_activations(int pp, int microbatches) {
  const Layout layout(pp, 1, microbatches);
  const DepthMap depth(pp, 1, DepthMap::even_cuts(pp, pp, pp), Residual::standard);
  Schedule schedule = gpipe(layout);
  schedule.forward_only = true;
  for (auto& rank : schedule.ranks)
    std::erase_if(rank, [](const Action& action) { return action.first.op != Op::forward; });
  return lower(schedule, depth, Policy::standard);
}

// In simulate(), where one message at a time goes through a rank's stream.
bool gets_stuck(const Program& program) {
  try {
    simulate(program, latency_only(SimTime(5)), {.order = ChannelOrder::single_stream, .duplex = Duplex::half});
    return false;
  } catch (const SimulationStuck&) {
    return true;
  }
}

}  // namespace

TEST_CASE("with a latency only, a network does at every step what simulate() does", "[simulator]") {
  Dice dice(611);
  for (int round = 0; round < 150; ++round) {
    const Program program = random_program(dice);
    CAPTURE(describe(program));
    const SimTime latency(dice.roll(0, 900));
    const CostModel drawn = random_model(dice, program.layout.num_chunks());
    std::vector<ActionTimes> times;
    for (int chunk = 0; chunk < program.layout.num_chunks(); ++chunk) {
      const auto time = [&](Op op) { return drawn.time_of(op, ChunkId(chunk)); };
      times.push_back({time(Op::forward), time(Op::backward), time(Op::backward_input), time(Op::backward_weight)});
    }
    const CostModel costs(times, Link{latency, SimTime(0), SimTime(0)}, storage_bytes);
    const NetworkModel network = uniform_network(program.layout.pp(), no_limit, latency);
    REQUIRE(first_difference(simulate_network(program, costs, network), simulate(program, costs)) == "");
  }
}

TEST_CASE("one stream per rank on cards of its own is the half-duplex stream of simulate()", "[simulator]") {
  Dice dice(612);
  constexpr std::int64_t units[] = {1000, 2000, 5000, 10'000, 50'000};
  for (int round = 0; round < 100; ++round) {
    const Program program = random_program(dice);
    CAPTURE(describe(program));
    const SimTime unit(units[dice.roll(0, 4)]);
    const ActionTimes times =
        action_times(SimTime(dice.roll(1, 90'000)), SimTime(dice.roll(1, 90'000)), SimTime(dice.roll(0, 90'000)));
    const CostModel costs(times, Link{SimTime(0), unit, unit}, storage_bytes);
    NetworkModel network = uniform_network(program.layout.pp(), rate_of(unit), SimTime(0));
    network.streams = CommStreams::single;
    const Timeline fair = simulate_network(program, costs, network);
    const Timeline exclusive = simulate(program, costs, {.order = ChannelOrder::single_stream, .duplex = Duplex::half});
    REQUIRE(first_difference(fair, exclusive) == "");
  }
}

TEST_CASE("two messages on one card share it as hand computation says", "[simulator]") {
  const Program program = relay_of_activations(3, 2);
  const CostModel costs = free_links();
  const Timeline timeline = simulate_network(program, costs, uniform_network(3, rate_of(us(1)) / 1500, SimTime(0)));
  // 0 sends at 1000 and at 2000, each alone 1500: 500 of the first are left when the second joins.
  CHECK(timeline.messages[0].start == us(1000));
  CHECK(timeline.messages[0].arrived == us(3000));
  CHECK(timeline.step == us(8000));
  CHECK(timeline.ranks[2].compute[0].start == us(6000));
  CHECK(timeline.ranks[2].compute[1].start == us(7000));
}

TEST_CASE("ranks that share an uplink are slowed by each other", "[simulator]") {
  // Both hops at once: 0 to 1 of the second microbatch and 1 to 2 of the first, through one resource of one unit per
  // 1000 us. Both begin at 2000 and end at 4000.
  const Program program = relay_of_activations(3, 2);
  const CostModel costs = free_links();
  NetworkModel network = uniform_network(3, no_limit, SimTime(0));
  network.resources.push_back({"uplink", rate_of(us(1000))});
  network.tiers[0].uplink_up.assign(3, ResourceId(0));
  const Timeline timeline = simulate_network(program, costs, network);
  std::vector<SimTime> arrivals;
  for (const MessageTimes& times : timeline.messages)
    arrivals.push_back(times.arrived);
  std::sort(arrivals.begin(), arrivals.end());
  // 0-1 of m0: 1000..2000. 0-1 of m1: 2000..3000. 1-2 of m0: 3000..4000. 1-2 of m1: 4000..5000.
  CHECK(arrivals == std::vector<SimTime>{us(2000), us(3000), us(4000), us(5000)});
  network.resources[0].bytes_per_s = rate_of(us(2000));
  const Timeline slow = simulate_network(program, costs, network);
  // m0: 1000..3000 alone until m1 joins at 2000: 1000 left each way, m0 ends at 4000, m1 has 1000 left. 1-2 of m0 joins
  // at 5000 when m1 has just ended: 5000..7000, joined at 6000 by 1-2 of m1: m0 ends at 8000, m1 at 9000.
  arrivals.clear();
  for (const MessageTimes& times : slow.messages)
    arrivals.push_back(times.arrived);
  std::sort(arrivals.begin(), arrivals.end());
  CHECK(arrivals == std::vector<SimTime>{us(4000), us(5000), us(8000), us(9000)});
}

TEST_CASE("a rank computes more slowly while it moves a message and while it waits for one", "[simulator]") {
  const Program program = relay_of_activations(2, 2);
  const CostModel costs = free_links();
  NetworkModel network = uniform_network(2, rate_of(us(1000)), SimTime(0));
  network.streams = CommStreams::single;
  CHECK(simulate_network(program, costs, network).step == us(4000));
  // Rank 0: the second forward does 500 in 1000..2000, the rest till 2500. Rank 1: the first forward has 500 left when
  // the second message begins at 2500.
  network.protocol.compute_share_while_active = 0.5;
  const Timeline active = simulate_network(program, costs, network);
  CHECK(active.ranks[0].compute[1].end == us(2500));
  CHECK(active.ranks[1].compute[0].end == us(3500));
  CHECK(active.step == us(4500));
  // From 2000 on rank 1 waits for the second message: three quarters of the speed till 2500.
  network.protocol.compute_share_while_waiting = 0.25;
  const Timeline waiting = simulate_network(program, costs, network);
  CHECK(waiting.ranks[1].compute[0].end == us(3625));
  CHECK(waiting.step == us(4625));
}

TEST_CASE("an eager message leaves before its receive is there, a rendezvous holds its sender", "[simulator]") {
  // Rank 1 is three times as slow, so the sender is ahead; its stream is free again once an eager message has left.
  const Program program = relay_of_activations(2, 3);
  const CostModel costs = free_links();
  NetworkModel network = uniform_network(2, rate_of(us(100)), us(50));
  network.streams = CommStreams::single;
  network.compute_scale = {1, 3};
  network.protocol.launch = us(10);
  const Timeline rendezvous = simulate_network(program, costs, network);
  CHECK(rendezvous.messages[0].start == us(1010));
  CHECK(rendezvous.messages[0].sent == us(1160));
  CHECK(rendezvous.messages[0].arrived == us(1160));
  network.protocol.eager_limit_bytes = storage_bytes.value;
  const Timeline eager = simulate_network(program, costs, network);
  CHECK(eager.messages[0].start == us(1010));
  CHECK(eager.messages[0].sent == us(1110));
  CHECK(eager.messages[0].arrived == us(1160));
  network.protocol.eager_limit_bytes = storage_bytes.value - 1;
  CHECK(first_difference(simulate_network(program, costs, network), rendezvous) == "");
}

TEST_CASE("on streams operations run in program order, one at a time, and batches end together", "[simulator]") {
  Dice dice(613);
  for (int round = 0; round < 80; ++round) {
    const Program program = random_program(dice);
    CAPTURE(describe(program));
    NetworkModel network = random_network(dice, program.layout.pp());
    const CostModel costs = random_model(dice, program.layout.num_chunks());
    const Timeline timeline = simulate_network(program, costs, network);
    const CommGroups groups(program, network.streams);
    const auto done = [&](std::int32_t end) {
      const MessageTimes& times = timeline.messages[static_cast<std::size_t>(end / 2)];
      return end % 2 == 0 ? times.sent : times.arrived;
    };
    std::size_t num_members = 0;
    for (std::int32_t group = 0; group < static_cast<std::int32_t>(groups.num_groups()); ++group) {
      for (const std::int32_t end : groups.members(group)) {
        ++num_members;
        REQUIRE(done(end) == done(groups.members(group).front()));
        const MessageTimes& times = timeline.messages[static_cast<std::size_t>(end / 2)];
        const bool eager_receive = end % 2 == 1 && network.protocol.eager_limit_bytes > 0;
        if (groups.has_previous(group) && !eager_receive) {
          REQUIRE(times.start >= done(groups.members(group - 1).front()) + network.protocol.launch);
        }
      }
    }
    if (network.streams != CommStreams::unordered) REQUIRE(num_members == 2 * program.messages.size());
  }
}

TEST_CASE("on any network every message arrives, the same each time, and waiting adds up", "[simulator]") {
  Dice dice(614);
  for (int round = 0; round < 120; ++round) {
    const Program program = random_program(dice);
    CAPTURE(describe(program));
    const NetworkModel network = random_network(dice, program.layout.pp());
    const CostModel costs = random_model(dice, program.layout.num_chunks());
    const Timeline timeline = simulate_network(program, costs, network);
    REQUIRE(first_difference(timeline, simulate_network(program, costs, network)) == "");
    const SimReport report = make_report(program, costs, timeline);
    REQUIRE(report.traffic_equals_formula);
    const std::vector<Exposure> parts = exposure(program, timeline);
    for (std::size_t r = 0; r < parts.size(); ++r) {
      SimTime sum{0};
      for (const ComputeTimes& times : timeline.ranks[r].compute)
        sum += times.exposed;
      REQUIRE(parts[r].total() == sum);
    }
  }
}

TEST_CASE("a program that gets stuck names the cycle of waits and the sizes in it", "[simulator]") {
  Dice dice(615);
  int num_stuck = 0;
  for (int round = 0; round < 100; ++round) {
    Program program = random_program(dice, {.pp = 4, .vp = 3, .sublayers = 20, .microbatches = 5});
    for (RankProgram& rank : program.ranks)
      order_by_own_use(rank);
    CAPTURE(describe(program));
    NetworkModel network = uniform_network(program.layout.pp(), no_limit, SimTime(5));
    network.streams = CommStreams::single;
    const bool dead = gets_stuck(program);
    if (check_deadlock(program, ChannelModel::single_stream).deadlock) REQUIRE(dead);
    try {
      simulate_network(program, free_links(), network);
      REQUIRE_FALSE(dead);
    } catch (const SimulationStuck& stuck) {
      REQUIRE(dead);
      ++num_stuck;
      const std::vector<SimulationStuck::Step>& cycle = stuck.waiting();
      REQUIRE(cycle.size() >= 2);
      for (std::size_t i = 0; i < cycle.size(); ++i) {
        const std::string next = cycle[(i + 1) % cycle.size()].what;
        CAPTURE(cycle[i].what, cycle[i].waiting_for, next);
        REQUIRE(cycle[i].waiting_for.find(next) != std::string::npos);
      }
      REQUIRE(std::string(stuck.what()).find(" bytes)") != std::string::npos);
    }
  }
  CHECK(num_stuck > 10);
}

TEST_CASE("a network that cannot be is refused with what is wrong", "[simulator]") {
  const auto refused = [](const NetworkModel& network, const char* why) {
    CHECK_THROWS_WITH(require_sound(network, 2), Catch::Contains(why));
  };
  const NetworkModel good = uniform_network(2, 1e9, SimTime(0));
  require_sound(good, 2);
  refused({}, "at least one");
  NetworkModel bad = good;
  bad.resources[1].bytes_per_s = 0;
  refused(bad, "rank 0 ingress moves 0 bytes per second: it must be 1..");
  bad = good;
  bad.tiers[0].group = {0, 1};
  refused(bad, "meet in no tier");
  bad = good;
  bad.tiers[0].egress[1] = ResourceId(9);
  refused(bad, "the egress of rank 1 is resource 9, there are 4");
  bad = good;
  bad.tiers[0].group.push_back(0);
  refused(bad, "groups 3 ranks: the program has 2");
  bad = good;
  bad.protocol.compute_share_while_active = 0.2;
  refused(bad, "only where they have streams");
  bad.streams = CommStreams::single;
  require_sound(bad, 2);
  bad.protocol.compute_share_while_active = 1;
  refused(bad, "it must be 0..0.95");
  bad = good;
  bad.compute_scale = {1};
  refused(bad, "one for each of 2 ranks");
  bad.compute_scale = {1, 0};
  refused(bad, "it must be 0.001..1000");
  bad = good;
  bad.protocol.eager_limit_bytes = -1;
  refused(bad, "the eager limit is -1 bytes");
}
