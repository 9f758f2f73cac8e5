// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/sizing/step_end.hpp"
#include "support/catch.hpp"

using namespace plumb;

namespace {

// Latencies of nothing and efficiencies of one, so that results can be read off.
Cluster plain() {
  Cluster cluster;
  cluster.gpu = {.name = "x", .bf16_tflops_dense = 100, .hbm_GBps = 1000, .mem_GiB = 80};
  cluster.tiers = {{.name = "in", .span_gpus = 8, .GBps_per_dir = 100}, {.name = "out", .GBps_per_dir = 10}};
  return cluster;
}

}  // namespace

TEST_CASE("a ring goes at the rate of the interfaces with which it passes each tier", "[sizing]") {
  const Cluster cluster = plain();
  const auto pass = [&](std::int64_t first, std::int64_t gpus, std::int64_t stride) {
    return ring_pass_seconds(cluster, first, gpus, stride, 1e9, 64);
  };
  CHECK(pass(0, 1, 1) == 0);
  CHECK(pass(0, 8, 1) == Approx(7.0 / 8 / 100));
  CHECK(pass(0, 16, 8) == Approx(15.0 / 16 / 10));        // one device per node
  CHECK(pass(0, 16, 1) == Approx(15.0 / 16 / (8 * 10)));  // eight interfaces between nodes
  CHECK(pass(0, 128, 1) == Approx(127.0 / 128 / (8 * 10)));
  CHECK(pass(0, 4, 4) == Approx(3.0 / 4 / (2 * 10)));
  CHECK(pass(4, 8, 1) == Approx(7.0 / 8 / (4 * 10)));  // half of two nodes each
}

TEST_CASE("the ring's passages are those of counting its hops and members one by one", "[sizing]") {
  for (const std::int64_t span : {2, 6, 8, 9}) {
    Cluster cluster = plain();
    cluster.tiers[0].span_gpus = span;
    cluster.tiers[0].latency_us = 1;
    cluster.tiers[1].latency_us = 1000;
    for (const std::int64_t stride : {1, 2, 3, 4, 7, 8, 12}) {
      for (std::int64_t gpus = 2; gpus < 40; ++gpus) {
        for (const std::int64_t first : {0, 5, 12}) {
          std::int64_t outer = 0;
          std::int64_t fewest = gpus;
          std::map<std::int64_t, std::int64_t> members;
          for (std::int64_t i = 0; i < gpus; ++i) {
            const std::int64_t here = (first + i * stride) / span;
            ++members[here];
            outer += here != (first + (i + 1) % gpus * stride) / span ? 1 : 0;
          }
          for (const auto& [group, count] : members)
            fewest = std::min(fewest, count);
          INFO(span << " " << stride << " " << gpus << " " << first);
          const auto all = static_cast<double>(gpus);
          const double latency = static_cast<double>(gpus - outer) + 1000.0 * static_cast<double>(outer);
          CHECK(ring_pass_seconds(cluster, first, gpus, stride, 0, 64) == Approx(latency * (all - 1) / all * 1e-6));
          CHECK(share_beyond_innermost(cluster, first, gpus, stride) == Approx(static_cast<double>(outer) / all));
          if (outer == 0) continue;
          const double moved = 1e12 / (10e9 * static_cast<double>(fewest)) * (all - 1) / all;
          CHECK(ring_pass_seconds(cluster, first, gpus, stride, 1e12, 64) ==
                Approx(std::max(moved, 1e12 / 100e9 * (all - 1) / all) + latency * (all - 1) / all * 1e-6));
        }
      }
    }
  }
}

TEST_CASE("interfaces are shared by the devices that send, and a ring pays latencies", "[sizing]") {
  Cluster cluster = plain();
  cluster.tiers[1].shared_by_gpus = 8;
  CHECK(ring_pass_seconds(cluster, 0, 2, 8, 1e9, 2) == Approx(0.5 / (10.0 / 2)));
  CHECK(ring_pass_seconds(cluster, 0, 2, 8, 1e9, 64) == Approx(0.5 / (10.0 / 8)));
  cluster.tiers[0].latency_us = 1;
  cluster.tiers[1].latency_us = 100;
  cluster.p2p.launch_us = 7;
  // 16 hops, 14 within nodes and 2 between them, of which a pass takes 15.
  CHECK(ring_pass_seconds(cluster, 0, 16, 1, 0, 16) == Approx((214.0 * 15 / 16 + 7) * 1e-6));
  cluster.tiers.pop_back();
  CHECK_THROWS_AS(ring_pass_seconds(cluster, 0, 16, 1, 1, 16), InputError);
}

TEST_CASE("gradients are reduced over those that hold the same parameters, and the optimizer is bound by memory",
          "[sizing]") {
  const Cluster cluster = plain();
  const Layout layout(1, 2, 5);
  const Batch batch{.degrees = {.tp = 2, .ep = 4, .dp = 8}};
  const std::vector<HeldParameters> held{{.replicated = 0, .split = 1e9, .experts = 0},
                                         {.replicated = 0, .split = 0, .experts = 4e9}};
  Efficiencies whole;
  whole.elementwise.memory = 1;
  const auto of = [&](Sharding sharding) { return step_ends(held, layout, batch, sharding, cluster, whole)[0]; };
  // Split: 8 devices 2 apart, 4 in each node. Experts: 4 devices 4 apart, 2 in each node.
  const double split = 7.0 / 8 * 4 / (4 * 10);
  const double experts = 3.0 / 4 * 16 / (2 * 10);
  const StepEnd none = of(Sharding::none);
  CHECK(none.reduce_seconds == Approx(2 * (split + experts)));
  CHECK(none.gather_seconds == 0);
  CHECK(none.optimizer_seconds == Approx(5 * 34e-3));
  CHECK(none.sent_bytes == Approx(2 * (7.0 / 8 * 4e9 + 3.0 / 4 * 16e9)));
  // 2 of 8 and 2 of 4 hops of the rings leave the node.
  CHECK(none.outer_bytes == Approx(2 * (7.0 / 8 * 4e9 * 2 / 8 + 3.0 / 4 * 16e9 * 2 / 4)));
  const StepEnd optimizer = of(Sharding::optimizer);
  CHECK(optimizer.reduce_seconds == Approx(split + experts));
  CHECK(optimizer.gather_seconds == Approx((split + experts) / 2));
  CHECK(optimizer.optimizer_seconds == Approx((1.0 / 8 + 4.0 / 4) * 30e-3 + 5 * 4e-3));
  const StepEnd gradients = of(Sharding::gradients);
  CHECK(gradients.reduce_seconds == Approx(5 * (split + experts)));
  CHECK(gradients.gather_seconds == optimizer.gather_seconds);
}

TEST_CASE("parameters whole on all devices of a tensor group are summed over it once more", "[sizing]") {
  const Cluster cluster = plain();
  const std::vector<HeldParameters> held{{.replicated = 1e9}};
  const Batch batch{.degrees = {.tp = 4}};
  const StepEnd end = step_ends(held, Layout(1, 1, 1), batch, Sharding::none, cluster)[0];
  CHECK(end.reduce_seconds == Approx(2 * 3.0 / 4 * 4 / 100));
}

TEST_CASE("the step ends with the slowest rank", "[sizing]") {
  Cluster cluster = *cluster_preset("h100");
  const ModelShape k3 = load_shape("kimi-k3");
  const Layout layout(16, 1, 32);
  const Batch batch{.degrees = {.tp = 8, .ep = 32, .dp = 8}};
  const auto cuts = DepthMap::even_cuts(186, 93, 16);
  const auto held = held_parameters(k3, cuts, layout, batch.degrees);
  const auto of = [&] { return step_ends(held, layout, batch, Sharding::optimizer, cluster); };
  double slowest = 0;
  for (const StepEnd& end : of())
    slowest = std::max(slowest, end.total());
  CHECK(seconds(of()) == slowest);
  CHECK(slowest > 0.01);
  CHECK(slowest < 2);
  cluster.stragglers = {{3, 3.0}};
  CHECK(of()[3].optimizer_seconds > 2.9 * of()[4].optimizer_seconds);
}
