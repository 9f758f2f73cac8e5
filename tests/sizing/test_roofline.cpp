// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/sizing/cluster_file.hpp"
#include "plumb/sizing/layer_costs.hpp"
#include "plumb/sizing/pipeline_costs.hpp"
#include "support/catch.hpp"

using namespace plumb;

namespace {

double flops_of(const std::vector<Kernel>& kernels, KernelClass kind) {
  double sum = 0;
  for (const Kernel& kernel : kernels)
    sum += kernel.kind == kind ? kernel.flops : 0;
  return sum;
}

double products_of(const std::vector<Kernel>& kernels) {
  return flops_of(kernels, KernelClass::products) + flops_of(kernels, KernelClass::expert_products);
}

double milliseconds(SimTime time) { return to_us(time) / 1000; }

}  // namespace

TEST_CASE("operations with weights are two per weight used and token, whatever the degrees", "[sizing]") {
  for (const char* name : {"kimi-k3", "kimi-linear-48b"}) {
    const ModelShape shape = load_shape(name);
    const std::vector<Work> work = sublayer_work(shape, 1);
    const Batch one{.tokens = 4096, .sequence = 4096};
    for (const int layer : {0, 1, 3}) {
      const DeviceWork mlp = mlp_work(shape, layer, one);
      const double expected = work[static_cast<std::size_t>(2 * layer + 1)].backward_weight * one.tokens;
      CHECK(products_of(mlp.forward) == Approx(expected));
      CHECK(products_of(mlp.backward_input) == Approx(expected));
      CHECK(products_of(mlp.backward_weight) == Approx(expected));
      Batch split = one;
      split.degrees = {.tp = 4, .ep = 8, .dp = 2};
      CHECK(products_of(mlp_work(shape, layer, split).forward) * 4 == Approx(expected));
      const DeviceWork attention = attention_work(shape, layer, one);
      CHECK(products_of(attention_work(shape, layer, split).forward) * 4 == Approx(products_of(attention.forward)));
    }
  }
}

TEST_CASE("a kernel takes the longer of its operations and its bytes", "[sizing]") {
  const Gpu gpu{.name = "x", .bf16_tflops_dense = 100, .hbm_GBps = 1000, .mem_GiB = 1};
  Efficiencies efficiencies;
  efficiencies.products = {0.5, 0.25};
  efficiencies.kernel_us = 2;
  CHECK(seconds(Kernel{KernelClass::products, 50e9, 0}, gpu, efficiencies) == Approx(1e-3 + 2e-6));
  CHECK(seconds(Kernel{KernelClass::products, 50e9, 1e9}, gpu, efficiencies) == Approx(4e-3 + 2e-6));
}

TEST_CASE("more recomputation keeps less and takes longer", "[sizing]") {
  const ModelShape k3 = load_shape("kimi-k3");
  const Cluster h100 = *cluster_preset("h100");
  const std::vector<int> cuts = DepthMap::even_cuts(186, 93, 16);
  Batch batch{.degrees = {.tp = 8, .ep = 8}, .block_sublayers = 24};
  std::vector<double> kept;
  std::vector<SimTime> backward;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    batch.recompute = recompute;
    kept.push_back(device_memory(k3, cuts, batch)[3].activation_bytes);
    backward.push_back(chunk_times(k3, cuts, batch, h100)[3].backward_input);
  }
  CHECK(kept[0] > kept[1]);
  CHECK(kept[1] > 4 * kept[2]);
  CHECK(backward[0] < backward[1]);
  CHECK(backward[1] < backward[2]);
}

TEST_CASE("the parameters that devices of all stages hold are those of the model", "[sizing]") {
  const ModelShape linear = load_shape("kimi-linear-48b");
  double sum = 0;
  for (const DeviceMemory& chunk : device_memory(linear, DepthMap::even_cuts(54, 27, 4), Batch{}))
    sum += chunk.parameters;
  CHECK(sum == Approx(static_cast<double>(parameters(linear).all)));
}

TEST_CASE("links follow the tier of two ranks' devices, shares and degrees", "[sizing]") {
  const Cluster h100 = *cluster_preset("h100");
  const UnitBytes bytes = unit_bytes(4096, 7168, 2, GradientWire::fp32);
  const CostModel costs(std::vector<ActionTimes>{{}}, pipeline_links(h100, 4, {.tp = 4}, bytes), bytes);
  const Link& inside = costs.link(RankId(0), RankId(1));
  const Link& outside = costs.link(RankId(1), RankId(2));
  CHECK(to_us(inside.value_unit) == Approx(static_cast<double>(bytes.value) / (4 * 450e3 * 0.82)).epsilon(1e-6));
  CHECK(to_us(outside.value_unit) == Approx(static_cast<double>(bytes.value) / (4 * 50e3 * 0.90)).epsilon(1e-6));
  CHECK(costs.link(RankId(3), RankId(0)).value_unit == outside.value_unit);
  CHECK(to_us(outside.gradient_unit) == Approx(2 * to_us(outside.value_unit)));
  CHECK(costs.plan_costs().value_unit > 0);
  CHECK_THROWS_AS(costs.require_fits(1, 5), InputError);
  CHECK_THROWS_AS(
      CostModel(std::vector<ActionTimes>{{}}, LinkTable{.num_ranks = 2, .links = {{}}, .of_pair = {0}}, bytes),
      InputError);
}

TEST_CASE("a straggler's chunks take longer and nobody else's", "[sizing]") {
  Cluster cluster = *cluster_preset("h100");
  cluster.stragglers = {{1, 1.5}};
  const Layout layout(4, 2, 8);
  const UnitBytes bytes = unit_bytes(4096, 7168, 2, GradientWire::fp32);
  const std::vector<int> cuts = DepthMap::even_cuts(186, 93, 8);
  const ModelShape k3 = load_shape("kimi-k3");
  const Batch batch{.degrees = {.tp = 8}};
  const CostModel slow = pipeline_costs(k3, cuts, layout, batch, cluster, bytes);
  const CostModel even = pipeline_costs(k3, cuts, layout, batch, *cluster_preset("h100"), bytes);
  for (int chunk = 0; chunk < 8; ++chunk) {
    const double ratio = chunk % 4 == 1 ? 1.5 : 1.0;
    CHECK(milliseconds(slow.time_of(Op::forward, ChunkId(chunk))) ==
          Approx(ratio * milliseconds(even.time_of(Op::forward, ChunkId(chunk)))));
  }
  cluster.stragglers = {{4, 1.5}};
  CHECK_THROWS_WITH(pipeline_costs(k3, cuts, layout, batch, cluster, bytes),
                    "cluster h100: straggler rank 4 is no rank of the pipeline, which has 0 to 3");
}

TEST_CASE("degrees that do not divide are refused with the nearest that do", "[sizing]") {
  const ModelShape k3 = load_shape("kimi-k3");
  const auto refused = [&](Degrees degrees) { require_divides(k3, {.degrees = degrees}); };
  CHECK_THROWS_WITH(refused({.tp = 5}),
                    "--tp 5 does not divide the 4096 tokens of a microbatch: the nearest that does "
                    "is 4");
  CHECK_THROWS_WITH(refused({.tp = 64}), "--tp 64 does not divide the 96 attention heads: the nearest that does is 48");
  CHECK_THROWS_WITH(refused({.tp = 8, .ep = 10, .dp = 5}),
                    "--ep 10 does not divide the 896 experts: the nearest that does is 8");
  CHECK_THROWS_WITH(refused({.tp = 8, .ep = 16}),
                    "--ep 16 deals out experts over the devices of a stage, of which there are --tp 8 x --dp 1 = 8: it "
                    "must divide them");
  CHECK_THROWS_AS(refused({.tp = 0}), InputError);
  CHECK_NOTHROW(refused({.tp = 8, .ep = 16, .dp = 2}));
}
