// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/sizing/footprint.hpp"
#include "plumb/sizing/roofline.hpp"
#include "support/catch.hpp"

using namespace plumb;

namespace {

const std::vector<int>& k3_cuts() {
  static const std::vector<int> cuts = DepthMap::even_cuts(186, 93, 32);
  return cuts;
}

}  // namespace

TEST_CASE("what devices of all stages hold is what the model has, however it is dealt out", "[sizing]") {
  for (const char* name : {"kimi-k3", "kimi-linear-48b"}) {
    const ModelShape shape = load_shape(name);
    const int layers = static_cast<int>(shape.layers.size());
    const std::vector<int> cuts = DepthMap::even_cuts(2 * layers, layers, 8);
    const Degrees degrees{.tp = 4, .ep = 16, .dp = 8};
    double sum = 0;
    for (const HeldParameters& chunk : held_parameters(shape, cuts, Layout(8, 1, 8), degrees)) {
      sum += chunk.replicated + degrees.tp * chunk.split + degrees.ep * chunk.experts;
    }
    CHECK(sum == Approx(static_cast<double>(parameters(shape).all)));
  }
}

TEST_CASE("parameters of a footprint agree with those of device memory", "[sizing]") {
  const ModelShape k3 = load_shape("kimi-k3");
  const Layout layout(16, 2, 32);
  const Batch batch{.degrees = {.tp = 8, .ep = 64, .dp = 8}, .block_sublayers = 24};
  const std::vector<DeviceMemory> chunks = device_memory(k3, k3_cuts(), batch);
  const std::vector<Footprint> ranks = footprints(k3, k3_cuts(), layout, batch, Sharding::none);
  REQUIRE(ranks.size() == 16);
  for (std::size_t rank = 0; rank < 16; ++rank) {
    const double held = chunks[rank].parameters + chunks[rank + 16].parameters;
    CHECK(ranks[rank].weights_bytes == Approx(2 * held));
    CHECK(ranks[rank].gradients_bytes == Approx(4 * held));
    CHECK(ranks[rank].optimizer_bytes == Approx(12 * held));
  }
}

TEST_CASE("experts are sharded over those that hold the same ones, not over all replicas", "[sizing]") {
  const ModelShape k3 = load_shape("kimi-k3");
  const Layout layout(16, 2, 32);
  Batch batch{.degrees = {.tp = 8, .ep = 32, .dp = 8}};
  const auto of = [&](Sharding sharding) { return footprints(k3, k3_cuts(), layout, batch, sharding)[3]; };
  const std::vector<HeldParameters> held = held_parameters(k3, k3_cuts(), layout, batch.degrees);
  const double dense = held[3].replicated + held[3].split + held[19].replicated + held[19].split;
  const double experts = held[3].experts + held[19].experts;
  CHECK(of(Sharding::optimizer).optimizer_bytes == Approx(12 * (dense / 8 + experts / 2)));
  CHECK(of(Sharding::optimizer).gradients_bytes == of(Sharding::none).gradients_bytes);
  const double chunk = std::max(held[3].all(), held[19].all());
  CHECK(of(Sharding::gradients).gradients_bytes ==
        Approx(4 * std::min(dense / 8 + experts / 2 + chunk, dense + experts)));
  // With all devices of the stage holding different experts there is nothing to shard of them.
  batch.degrees.ep = 64;
  CHECK(of(Sharding::optimizer).optimizer_bytes >
        12 * held_parameters(k3, k3_cuts(), layout, batch.degrees)[3].experts * 2 * 0.9);
  batch.degrees = {.tp = 8, .ep = 8};
  CHECK(of(Sharding::gradients).gradients_bytes == of(Sharding::none).gradients_bytes);
}

TEST_CASE("a tied head needs the embedding on the last rank too", "[sizing]") {
  ModelShape shape = load_shape("kimi-linear-48b");
  shape.tied_embeddings = true;
  const std::vector<int> cuts = DepthMap::even_cuts(54, 27, 4);
  const double entries = static_cast<double>(shape.vocabulary) * shape.hidden;
  const auto last = [&](const Layout& layout) { return held_parameters(shape, cuts, layout, {})[3].split; };
  CHECK(last(Layout(4, 1, 8)) - last(Layout(1, 4, 8)) == Approx(entries));
  CHECK(last(Layout(2, 2, 8, Placement::vee)) == last(Layout(1, 4, 8)));
}

TEST_CASE("room to compute in is what is gathered, recomputed or scored", "[sizing]") {
  const ModelShape k3 = load_shape("kimi-k3");
  const Layout layout(16, 2, 32);
  Batch batch{.degrees = {.tp = 8, .ep = 8}, .block_sublayers = 24};
  const auto of = [&](std::size_t rank) {
    return footprints(k3, k3_cuts(), layout, batch, Sharding::none)[rank].workspace_bytes;
  };
  CHECK(of(3) == Approx(2.0 * 4096 * 7168 * 2));
  CHECK(of(15) == Approx(4096.0 / 8 * 163840 * 4));
  batch.recompute = Recompute::full;
  const DeviceWork whole = mlp_work(k3, 20, {.degrees = batch.degrees, .block_sublayers = 24});
  CHECK(of(3) > whole.activation_bytes);
  batch.degrees = {};
  batch.recompute = Recompute::none;
  CHECK(of(3) == 0);
}

TEST_CASE("shardings have names", "[sizing]") {
  for (const Sharding sharding : {Sharding::none, Sharding::optimizer, Sharding::gradients}) {
    CHECK(parse_sharding(to_string(sharding)) == sharding);
  }
  CHECK_THROWS_AS(parse_sharding("zero-3"), InputError);
}
