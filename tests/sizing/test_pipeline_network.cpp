// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/simulator/longest_path.hpp"
#include "plumb/simulator/network.hpp"
#include "plumb/simulator/simulate.hpp"
#include "plumb/sizing/pipeline_costs.hpp"
#include "plumb/sizing/pipeline_network.hpp"
#include "support/catch.hpp"

using namespace plumb;

namespace {

// Two nodes of four devices: 8 GB/s within, one card of 1 GB/s for a node.
Cluster two_nodes() {
  return {.name = "two",
          .gpu = {.name = "x", .bf16_tflops_dense = 1, .hbm_GBps = 1, .mem_GiB = 1},
          .tiers = {{.name = "bus", .span_gpus = 4, .GBps_per_dir = 8, .latency_us = 1},
                    {.name = "card", .GBps_per_dir = 2, .efficiency = 0.5, .latency_us = 10, .shared_by_gpus = 4}},
          .p2p = {.eager_limit_bytes = 100, .sm_fraction_while_active = 0.25, .launch_us = 2},
          .stragglers = {},
          .cores_per_node = {}};
}

double rate(const NetworkModel& network, ResourceId resource) {
  return network.resources[resource.index()].bytes_per_s;
}

// What a rank sends and receives with nothing but latencies of 1 us and 1000 bytes per unit.
UnitBytes thousand() { return {.value = 1000, .gradient_wire = 1000, .gradient_slot = 1000}; }

CostModel costs_on(const Cluster& cluster, int num_ranks, const Degrees& degrees) {
  const SimTime us = from_us(1, "action");
  return CostModel({action_times(us, us, us)}, pipeline_links(cluster, num_ranks, degrees, thousand()), thousand());
}

}  // namespace

TEST_CASE("ranks of one node share its card, those of another have theirs", "[sizing]") {
  const NetworkModel network = pipeline_network(two_nodes(), 8, {});
  REQUIRE(network.tiers.size() == 2);
  const NetworkTier& bus = network.tiers[0];
  const NetworkTier& card = network.tiers[1];
  CHECK(bus.group == std::vector<std::int32_t>{0, 0, 0, 0, 1, 1, 1, 1});
  CHECK(bus.latency == from_us(1, ""));
  CHECK(card.latency == from_us(10, ""));
  CHECK(network.protocol.launch == from_us(2, ""));
  for (std::size_t r = 0; r < 8; ++r) {
    CHECK(card.egress[r] == card.egress[r / 4 * 4]);
    CHECK(card.egress[r] != card.egress[7 - r]);
    CHECK(card.ingress[r] != card.egress[r]);
    CHECK(rate(network, card.egress[r]) == 1e9);
    CHECK(rate(network, bus.egress[r]) == 8e9);
    CHECK((r == 0 || bus.egress[r] != bus.egress[r - 1]));
  }
}

TEST_CASE("devices of a rank add up, replicas have a part each, half duplex is one for both ways", "[sizing]") {
  Cluster cluster = two_nodes();
  cluster.tiers[1].full_duplex = false;
  // Two devices share a rank with their replicas: the node's card is one replica's by half, and that of two ranks.
  const NetworkModel halves = pipeline_network(cluster, 4, {.tp = 1, .dp = 2});
  CHECK(rate(halves, halves.tiers[1].egress[0]) == 0.5e9);
  CHECK(halves.tiers[1].egress[0] == halves.tiers[1].egress[1]);
  CHECK(halves.tiers[1].egress[0] == halves.tiers[1].ingress[0]);
  CHECK(halves.tiers[1].egress[1] != halves.tiers[1].egress[2]);
  CHECK(rate(halves, halves.tiers[0].egress[0]) == 8e9);
  // A rank of two nodes: both cards, half of which are its replica's.
  const NetworkModel wide = pipeline_network(cluster, 2, {.tp = 4, .dp = 2});
  CHECK(rate(wide, wide.tiers[1].egress[0]) == 1e9);
  CHECK(wide.tiers[1].egress[0] != wide.tiers[1].egress[1]);
  CHECK(wide.tiers[0].group[0] != wide.tiers[0].group[1]);
  CHECK(wide.protocol.eager_limit_bytes == 400);
}

TEST_CASE("shares of compute hold on streams only", "[sizing]") {
  CHECK(pipeline_network(two_nodes(), 4, {}).protocol.compute_share_while_active == 0);
  CHECK(pipeline_network(two_nodes(), 4, {}, CommStreams::batched).protocol.compute_share_while_active == 0.25);
}

TEST_CASE("layouts that no network describes are refused", "[sizing]") {
  CHECK_THROWS_AS(pipeline_network(two_nodes(), 4, {.tp = 3}), InputError);
  Cluster box = two_nodes();
  box.tiers.pop_back();
  CHECK_THROWS_AS(pipeline_network(box, 8, {}), InputError);
  CHECK(pipeline_network(box, 4, {}).tiers.size() == 1);
}

TEST_CASE("stragglers are in the times of chunks and not scaled again", "[sizing]") {
  Cluster cluster = two_nodes();
  cluster.stragglers = {{.rank = 1, .compute_scale = 2}};
  CHECK(pipeline_network(cluster, 4, {}).compute_scale.empty());
}

TEST_CASE("rates beyond what a network takes are cut", "[sizing]") {
  const NetworkModel network = pipeline_network(*cluster_preset("gb200-nvl72"), 4, {.tp = 18});
  CHECK(rate(network, network.tiers[0].egress[0]) == max_bytes_per_s);
  CHECK(network.tiers.size() == 1);
}

TEST_CASE("a rank across two nodes talks to no other rank within one", "[sizing]") {
  Cluster cluster = two_nodes();
  cluster.tiers[1].shared_by_gpus = 1;
  const Degrees three{.tp = 3};
  const NetworkModel network = pipeline_network(cluster, 4, three);  // ranks at devices 0-2, 3-5, 6-8, 9-11
  CHECK(network.tiers[0].group == std::vector<std::int32_t>{0, -2, -3, 2});
  const LinkTable links = pipeline_links(cluster, 4, three, thousand());
  CHECK(links.of_pair[1] == 1);
  CHECK(links.of_pair[2 * 4 + 3] == 1);
}

TEST_CASE("two ranks that send through one card at once have half its rate each", "[sizing]") {
  Cluster cluster = two_nodes();
  cluster.tiers[0].span_gpus = 1;
  cluster.tiers[1].latency_us = 0;
  cluster.tiers[1].shared_by_gpus = 2;
  cluster.p2p = {};
  const NetworkModel network = pipeline_network(cluster, 4, {});
  const Program program =
      lower(gpipe(Layout(4, 1, 3)), DepthMap(4, 1, {1, 2, 3, 4}, Residual::standard), Policy::standard);
  // Alone on a card of 1 byte per ns a unit takes 1 us. Rank 1 computes 1.5 us, the others 1.
  const auto ns = [](int count) { return SimTime(count * 1000); };
  std::vector<ActionTimes> times(4, action_times(ns(1000), ns(1000), ns(1000)));
  times[1].forward = ns(1500);
  const CostModel costs(times, Link{}, thousand());
  const Timeline timeline = simulate_network(program, costs, network);
  const auto forward = [&](int from_chunk, int microbatch) {
    std::size_t m = 0;
    while (program.messages[m].direction != Direction::forward || program.messages[m].microbatch.value != microbatch ||
           program.transfer_of(MessageId(m)).from_chunk.value != from_chunk)
      ++m;
    return timeline.messages[m];
  };
  // Rank 0 sends its third microbatch from 3 us on, rank 1 its first from 3.5 on: what is left of the third, half,
  // takes as long as half of the first, which then has the card to itself.
  CHECK(forward(0, 2).start == ns(3000));
  CHECK(forward(1, 0).start == ns(3500));
  CHECK(forward(0, 2).arrived == ns(4500));
  CHECK(forward(1, 0).arrived == ns(5000));
}

TEST_CASE("where no card is shared, exclusive, fair and longest path agree", "[sizing]") {
  Cluster cluster = two_nodes();
  cluster.tiers[1].shared_by_gpus = 1;
  cluster.p2p = {};
  for (Tier& tier : cluster.tiers)
    tier.latency_us = 0;
  const Layout layout(6, 1, 5);
  const DepthMap depth(12, 4, DepthMap::even_cuts(12, 12, 6));
  const Program program = lower(one_f_one_b(layout), depth, Policy::naive);
  const CostModel costs = costs_on(cluster, 6, {});
  // One message at a time in program order is what both mean by a stream.
  const NetworkModel single = pipeline_network(cluster, 6, {}, CommStreams::single);
  const Timeline exclusive = simulate(program, costs, {.order = ChannelOrder::single_stream, .duplex = Duplex::half});
  const Timeline shared = simulate_network(program, costs, single);
  CHECK(shared.step == exclusive.step);
  CHECK(LongestPath(program, costs.bytes(), single).step(costs) == exclusive.step);
  // A cluster of equal cards is the network of equal cards.
  cluster.tiers.erase(cluster.tiers.begin());
  const NetworkModel cards = pipeline_network(cluster, 6, {});
  CHECK(simulate_network(program, costs, cards).step ==
        simulate_network(program, costs, uniform_network(6, 1e9, SimTime(0))).step);
}

TEST_CASE("ranks of one machine share its cores", "[sizing]") {
  Cluster cluster = two_nodes();
  CHECK(pipeline_network(cluster, 8, {}).shared_cores.machine.empty());
  cluster.cores_per_node = 3;
  const SharedCores shared = pipeline_network(cluster, 6, {}).shared_cores;
  CHECK(shared.cores == 3);
  CHECK(shared.machine == std::vector<std::int32_t>{0, 0, 0, 0, 1, 1});
  CHECK(cores_are_scarce(shared));
  CHECK_FALSE(cores_are_scarce(pipeline_network(cluster, 3, {}).shared_cores));
  CHECK(pipeline_network(cluster, 3, {.dp = 8}).shared_cores.machine == std::vector<std::int32_t>{0, 1, 2});
}
