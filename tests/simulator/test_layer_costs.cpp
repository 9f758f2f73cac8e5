// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/layer_costs.hpp"
#include "support/catch.hpp"

using namespace plumb;

TEST_CASE("the matrices of the published models add up to the published parameters", "[simulator]") {
  const Parameters k3 = parameters(load_shape("kimi-k3"));
  CHECK(k3.all == Approx(2779.484e9).epsilon(0.0001));
  CHECK(k3.used == Approx(105.36e9).epsilon(0.001));
  CHECK(parameters(load_shape("kimi-linear-48b")).all == Approx(49.1227e9).epsilon(0.0005));
}

TEST_CASE("the head of K3 is as heavy as a layer, and a long sequence makes full attention the heaviest",
          "[simulator]") {
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

TEST_CASE("the times of the chunks are those of their sublayers, the head's in the last", "[simulator]") {
  const ModelShape k3 = load_shape("kimi-k3");
  const std::vector<int> cuts = DepthMap::even_cuts(186, 93, 16);
  const std::vector<ActionTimes> chunks = chunk_times(k3, cuts, {});
  REQUIRE(chunks.size() == 16);
  SimTime sum{0};
  for (const ActionTimes& chunk : chunks) {
    sum += chunk.forward;
    CHECK(chunk.backward == chunk.backward_input + chunk.backward_weight);
  }
  CHECK(to_us(sum) == Approx(to_us(chunk_times(k3, std::vector<int>{186}, {})[0].forward)));
  CHECK(chunks[15].forward > chunks[14].forward);
  CHECK(to_us(chunk_times(k3, cuts, {.tokens = 8192}).front().forward) == Approx(2 * to_us(chunks.front().forward)));
  CHECK_THROWS_AS(chunk_times(k3, std::vector<int>{93}, {}), InputError);
  CHECK_THROWS_AS(chunk_times(k3, cuts, {.teraflops = 0}), InputError);
}

TEST_CASE("a shape is read from a config.json, and what is missing is named", "[simulator]") {
  const std::string text = R"({"text_config": {"num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 100,
    "linear_attn_config": {"full_attn_layers": [2, 4], "num_heads": 2, "head_dim": 8, "use_full_rank_gate": true},
    "num_attention_heads": 2, "q_lora_rank": null, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
    "v_head_dim": 8, "first_k_dense_replace": 1, "intermediate_size": 128, "num_experts": 4,
    "num_experts_per_token": 2, "moe_intermediate_size": 32}})";
  const ModelShape shape = parse_shape(text, "x");
  CHECK(shape.full_attention_layers == std::vector<int>{2, 4});
  CHECK(shape.query_rank == 0);
  CHECK(shape.full_rank_gate);
  CHECK(!shape.output_gate);
  CHECK(shape.latent_width == 64);
  CHECK(shape.shared_experts == 0);
  CHECK_THROWS_WITH(parse_shape(R"({"num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 100})", "x"),
                    "x: no field linear_attn_config.full_attn_layers");
  CHECK_THROWS_WITH(parse_shape(R"({"num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 100,
                                    "linear_attn_config": {"full_attn_layers": [2, 2]}})",
                                "x"),
                    "x: linear_attn_config.full_attn_layers does not ascend at 2");
  CHECK_THROWS_WITH(parse_shape(R"({"num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 100,
                                    "linear_attn_config": 3})",
                                "x"),
                    "x: linear_attn_config is not an object");
}
