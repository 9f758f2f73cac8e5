// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cache/support/programs.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/simulator/critical_path.hpp"
#include "plumb/simulator/link_load.hpp"
#include "plumb/simulator/longest_path.hpp"
#include "plumb/simulator/network.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/simulate.hpp"
#include "plumb/simulator/what_if.hpp"
#include "simulator/support/models.hpp"
#include "simulator/support/networks.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

void require_whole(const std::vector<PathPiece>& path, SimTime step) {
  SimTime at{0};
  for (const PathPiece& piece : path) {
    REQUIRE(piece.begin == at);
    REQUIRE(piece.end > at);
    at = piece.end;
  }
  REQUIRE(at == step);
}

SimTime time_of(const std::vector<PathPiece>& path, PathKind kind) {
  SimTime sum{0};
  for (const PathShare& share : path_shares(path))
    sum += share.kind == kind ? share.time : SimTime(0);
  return sum;
}

Program standard(int pp, int microbatches) {
  std::vector<int> cuts;
  for (int chunk = 1; chunk <= pp; ++chunk)
    cuts.push_back(chunk);
  return lower(one_f_one_b(Layout(pp, 1, microbatches)), DepthMap(pp, 1, cuts, Residual::standard), Policy::standard);
}

const WhatIf& row(const std::vector<WhatIf>& rows, std::string_view what) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const WhatIf& one) { return one.what == what; });
  REQUIRE(found != rows.end());
  return *found;
}

}  // namespace

TEST_CASE("the critical path has no gap and is the step, on any program and any links", "[simulator]") {
  Dice dice(720);
  SimTime queued{0};
  for (int round = 0; round < 60; ++round) {
    const Program program = random_program(dice, {.pp = 6, .vp = 3, .sublayers = 30, .microbatches = 6});
    CAPTURE(describe(program));
    const CostModel costs = random_model(dice, program.layout.num_chunks());
    const Timeline alone = simulate(program, costs);
    require_whole(critical_path(program, costs, alone), alone.step);
    const NetworkModel network = random_network(dice, program.layout.pp());
    const Timeline shared = simulate_network(program, costs, network);
    const std::vector<PathPiece> path = critical_path(program, costs, shared, &network);
    require_whole(path, shared.step);
    queued += time_of(path, PathKind::queue);
    const SimReport report = make_report(program, costs, shared, &network);
    REQUIRE(report.times_add_up);
    for (const RankReport& rank : report.ranks) {
      REQUIRE(rank.exposed.wait >= SimTime(0));
      REQUIRE(rank.exposed.queue >= SimTime(0));
      REQUIRE(rank.exposed.wire >= SimTime(0));
    }
  }
  CHECK(queued > SimTime(0));
}

TEST_CASE("the path of one microbatch over two ranks goes there and back", "[simulator]") {
  const Program program = standard(2, 1);
  const CostModel costs = latency_only(us(40));
  const std::vector<PathPiece> path = critical_path(program, costs, simulate(program, costs));
  REQUIRE(path.size() == 6);  // F, message, F, B, message, B
  const PathKind kinds[] = {PathKind::forward,  PathKind::wire, PathKind::forward,
                            PathKind::backward, PathKind::wire, PathKind::backward};
  for (std::size_t i = 0; i < 6; ++i)
    CHECK(path[i].kind == kinds[i]);
  CHECK(path[1].end - path[1].begin == us(40));
  CHECK(path[1].rank == RankId(0));
  CHECK(path[1].to == RankId(1));
  CHECK(path[4].rank == RankId(1));
  const std::vector<PathShare> shares = path_shares(path);
  CHECK(shares.front().kind == PathKind::backward);
  CHECK(shares.front().time == us(2000));
}

TEST_CASE("what a message takes beyond its time alone is queueing", "[simulator]") {
  // A unit takes 750 us on a card, F 1000 us, so that no rank ever sends two messages at once; three ranks on one card
  // do.
  const Program program = standard(3, 6);
  const CostModel costs = free_links();
  const double rate = static_cast<double>(costs.bytes().value) / 750e-6;
  NetworkModel network = uniform_network(3, rate, SimTime(0));
  network.tiers[0].ingress.clear();
  const auto exposed = [&](const NetworkModel& model) {
    Exposure sum;
    for (const RankReport& rank : make_report(program, costs, simulate_network(program, costs, model), &model).ranks) {
      sum.queue += rank.exposed.queue;
      sum.wire += rank.exposed.wire;
    }
    return sum;
  };
  CHECK(exposed(network).queue == SimTime(0));
  CHECK(exposed(network).wire > SimTime(0));
  network.tiers[0].egress[1] = network.tiers[0].egress[2] = network.tiers[0].egress[0];
  CHECK(exposed(network).queue > SimTime(0));
  const Timeline timeline = simulate_network(program, costs, network);
  const LinkLoads loads = link_loads(program, costs, timeline, &network);
  REQUIRE(loads.links.size() == 1);
  CHECK(loads.links[0].bytes == make_report(program, costs, timeline).bytes_per_step);
  CHECK(loads.tiers[0].bytes == loads.links[0].bytes);
  // While anything moves through a card that all share, it moves at its full rate.
  CHECK(loads.links[0].num_messages == 24);
  CHECK(to_us(loads.links[0].busy) == Approx(24 * 750.0).margin(1e-3));
  CHECK(mean_use(loads.links[0], timeline.step) == Approx(24 * 750.0 / to_us(timeline.step)));
}

TEST_CASE("one message at a time keeps a rank's ways in and out as busy as its messages take", "[simulator]") {
  Dice dice(721);
  for (int round = 0; round < 20; ++round) {
    const Program program = random_program(dice, {.pp = 6, .vp = 3, .sublayers = 30, .microbatches = 6});
    const CostModel costs = unit_time(us(50));
    const Timeline timeline = simulate(program, costs);
    const SimReport report = make_report(program, costs, timeline);
    std::int64_t out = 0;
    std::int64_t in = 0;
    for (const LinkLoad& load : link_loads(program, costs, timeline).links) {
      REQUIRE(load.busy <= timeline.step);
      REQUIRE(load.busy == us(50) * (load.bytes / costs.bytes().value));
      (load.name.ends_with("out") ? out : in) += load.bytes;
    }
    REQUIRE(out == report.bytes_per_step);
    REQUIRE(in == report.bytes_per_step);
  }
}

TEST_CASE("a tenth less time for all there is takes a tenth off the step", "[simulator]") {
  const Program program = standard(4, 8);
  const CostModel costs = free_links();
  const Timeline timeline = simulate(program, costs);
  const std::vector<WhatIf> rows = what_if(program, costs, timeline, critical_path(program, costs, timeline));
  CHECK(row(rows, "all computations").saves == timeline.step / 10);
  CHECK(row(rows, "all rates of messages").saves == SimTime(0));
  CHECK(rows.front().what == "all computations");
  // The slowest of four equal ranks is not faster when one is: only what starts and drains on it is shorter.
  CHECK(row(rows, "the last chunk, with the head").saves < timeline.step / 20);
  CHECK(row(rows, "the last chunk, with the head").saves > SimTime(0));
}

TEST_CASE("answers are simulations of the step with that changed", "[simulator]") {
  Dice dice(722);
  for (int round = 0; round < 12; ++round) {
    const Program program = random_program(dice, {.pp = 4, .vp = 2, .sublayers = 16, .microbatches = 4});
    CAPTURE(describe(program));
    const CostModel costs = random_model(dice, program.layout.num_chunks());
    const NetworkModel network = random_unshared_network(dice, program.layout.pp());
    const Timeline timeline = simulate_network(program, costs, network);
    WhatIfRequest request;
    request.network = &network;
    request.most = 12;
    const std::vector<PathPiece> path = critical_path(program, costs, timeline, &network);
    const std::vector<WhatIf> rows = what_if(program, costs, timeline, path, request);
    CHECK(rows.size() <= 12);
    NetworkModel quicker = network;
    quicker.protocol.launch = SimTime(std::llround(static_cast<double>(network.protocol.launch.count()) * 0.9));
    for (NetworkTier& tier : quicker.tiers)
      tier.latency = SimTime(std::llround(static_cast<double>(tier.latency.count()) * 0.9));
    if (program.messages.empty()) continue;
    CHECK(row(rows, "all latencies of messages").step == simulate_network(program, costs, quicker).step);
    for (const WhatIf& one : rows)
      CHECK(one.saves == timeline.step - one.step);
  }
}
