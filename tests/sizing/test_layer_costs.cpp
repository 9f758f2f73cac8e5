// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/sizing/layer_costs.hpp"
#include "support/catch.hpp"

using namespace plumb;

TEST_CASE("the head of K3 is as heavy as a layer, and a long sequence makes full attention the heaviest", "[sizing]") {
  const ModelShape k3 = load_shape("kimi-k3");
  const std::vector<Work> work = sublayer_work(k3, 4096);
  REQUIRE(work.size() == 187);
  const double layer = work[4].forward + work[5].forward;
  CHECK(work.back().forward == Approx(layer).epsilon(0.05));
  CHECK(work[6].forward < work[4].forward);     // layer 4 has full attention, layer 3 linear
  CHECK(work[184].forward == work[6].forward);  // and so has the last
  CHECK(sublayer_work(k3, 131072)[6].forward > 3 * work[4].forward);
  CHECK(work[6].backward_input > work[6].forward);
  CHECK(work[6].backward_weight < work[6].forward);
  CHECK(work[5].backward_input == work[5].forward);
}

TEST_CASE("the times of the chunks are those of their sublayers, the head's in the last", "[sizing]") {
  const ModelShape k3 = load_shape("kimi-k3");
  const std::vector<int> cuts = DepthMap::even_cuts(186, 93, 16);
  const std::vector<ActionTimes> chunks = chunk_times(k3, cuts, Rate{});
  REQUIRE(chunks.size() == 16);
  SimTime sum{0};
  for (const ActionTimes& chunk : chunks) {
    sum += chunk.forward;
    CHECK(chunk.backward == chunk.backward_input + chunk.backward_weight);
  }
  CHECK(to_us(sum) == Approx(to_us(chunk_times(k3, std::vector<int>{186}, Rate{})[0].forward)));
  CHECK(chunks[15].forward > chunks[14].forward);
  CHECK(to_us(chunk_times(k3, cuts, Rate{.tokens = 8192}).front().forward) ==
        Approx(2 * to_us(chunks.front().forward)));
  CHECK_THROWS_AS(chunk_times(k3, std::vector<int>{93}, Rate{}), InputError);
  CHECK_THROWS_AS(chunk_times(k3, cuts, Rate{.teraflops = 0}), InputError);
}
