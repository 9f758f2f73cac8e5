// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/model_shape.hpp"
#include "support/catch.hpp"

using namespace plumb;

namespace {

std::string kimi(const std::string& lists) {
  return R"({"text_config": {"model_type": "kimi_linear", "num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 100,
    "linear_attn_config": {)" +
         lists + R"(, "num_heads": 2, "head_dim": 8, "use_full_rank_gate": true},
    "num_attention_heads": 2, "q_lora_rank": null, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
    "v_head_dim": 8, "first_k_dense_replace": 1, "intermediate_size": 128, "num_experts": 4,
    "num_experts_per_token": 2, "moe_intermediate_size": 32}})";
}

}  // namespace

TEST_CASE("a shape is read from a config.json", "[sizing]") {
  const ModelShape shape = parse_shape(kimi(R"("full_attn_layers": [2, 4])"), "x");
  REQUIRE(shape.layers.size() == 4);
  CHECK(shape.layers[0] == DecoderLayer{.linear_attention = true, .experts = false});
  CHECK(shape.layers[1] == DecoderLayer{.linear_attention = false, .experts = true});
  CHECK(shape.delta.full_rank_gate);
  CHECK(shape.delta.decay_entries == 2);
  CHECK(std::get<LatentAttention>(shape.attention).query_rank == 0);
  CHECK_FALSE(std::get<LatentAttention>(shape.attention).output_gate);
  CHECK(shape.experts.latent_width == 0);
  CHECK(shape.experts.shared_width == 0);
  CHECK_FALSE(shape.depth_attention);
}

TEST_CASE("lists of layers count from 1 and must name every layer once", "[sizing]") {
  CHECK_THROWS_WITH(parse_shape(kimi(R"("full_attn_layers": [0, 3])"), "x"),
                    "x: text_config.linear_attn_config.full_attn_layers is 0, legal are 1 to 4");
  CHECK_THROWS_WITH(parse_shape(kimi(R"("full_attn_layers": [2, 2])"), "x"),
                    "x: text_config.linear_attn_config.full_attn_layers does not ascend at 2");
  CHECK_THROWS_WITH(parse_shape(kimi(R"("full_attn_layers": [2, 4], "kda_layers": [1, 2, 3])"), "x"),
                    "x: text_config.linear_attn_config.kda_layers names layer 2, which stands in full_attn_layers too");
  CHECK_THROWS_WITH(parse_shape(kimi(R"("full_attn_layers": [2, 4], "kda_layers": [1])"), "x"),
                    "x: text_config.linear_attn_config.kda_layers lacks layer 3 (they count from 1), which "
                    "full_attn_layers lacks too");
}

TEST_CASE("what is missing or senseless in a config.json is named", "[sizing]") {
  CHECK_THROWS_WITH(parse_shape(R"({"num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 100})", "x"),
                    "x: no field num_attention_heads");
  CHECK_THROWS_WITH(parse_shape(R"({"num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 100, "kv_lora_rank": 8,
    "num_attention_heads": 2, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "linear_attn_config": 3})",
                                "x"),
                    "x: linear_attn_config is not an object");
  CHECK_THROWS_WITH(parse_shape(R"({"model_type": "qwen3_mo"})", "x"),
                    Catch::StartsWith("x: model_type is 'qwen3_mo', whose layers are not known here, did you mean "
                                      "'qwen3_moe'?; known are kimi_linear, "));
  CHECK_THROWS_WITH(parse_shape(R"({"num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 100,
    "num_attention_heads": 6, "intermediate_size": 8})",
                                "x"),
                    Catch::StartsWith("x: num_attention_heads is 6, which does not divide hidden_size 64"));
  CHECK_THROWS_WITH(parse_shape(R"({"num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 100,
    "num_attention_heads": 8, "num_key_value_heads": 3, "intermediate_size": 8})",
                                "x"),
                    "x: num_key_value_heads is 3, which does not divide the 8 num_attention_heads");
  CHECK_THROWS_WITH(parse_shape(R"({"num_hidden_layers": 100000, "hidden_size": 262144, "vocab_size": 100,
    "num_attention_heads": 262144, "head_dim": 262144, "intermediate_size": 1048576})",
                                "x"),
                    Catch::Contains("parameters, legal are 1e+16"));
}
