// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/error.hpp"
#include "plumb/sizing/model_config.hpp"
#include "support/catch.hpp"
#include "support/refusals.hpp"

using namespace plumb;

TEST_CASE("a config counts decoder layers, two sublayers each, nested or not", "[sizing]") {
  const ModelConfig flat = parse_model_config(
      R"({"num_hidden_layers": 6, "hidden_size": 64, "attn_res_block_size": 2, "other": null})", "x");
  REQUIRE(flat.sublayers() == 12);
  REQUIRE(flat.hidden == 64);
  REQUIRE(flat.block_decoder_layers == 2);
  const ModelConfig nested = parse_model_config(
      R"({"hidden_size": 1, "text_config": {"num_hidden_layers": 6, "hidden_size": 64, "attn_res_block_size": null}})",
      "x");
  REQUIRE(nested.hidden == 64);
  REQUIRE_FALSE(nested.block_decoder_layers);
}

TEST_CASE("the presets are the published models", "[sizing]") {
  const ModelConfig k3 = load_model("kimi-k3");
  REQUIRE(k3.decoder_layers == 93);
  REQUIRE(k3.hidden == 7168);
  REQUIRE(k3.block_decoder_layers == 12);
  const ModelConfig linear = load_model("kimi-linear-48b");
  REQUIRE(linear.sublayers() == 54);
  REQUIRE(linear.block_decoder_layers == 3);  // 6 sublayers per block, 9 blocks
}

TEST_CASE("the automatic block length makes about eight blocks", "[sizing]") {
  REQUIRE(automatic_block_layers(93) == 12);
  REQUIRE(automatic_block_layers(1) == 1);
  REQUIRE(automatic_block_layers(8) == 1);
  REQUIRE(automatic_block_layers(9) == 2);
}

TEST_CASE("a field of the wrong type or size is refused with its path", "[sizing]") {
  const auto text_of = [](const char* json) {
    return plumb::test::refusal_of([&] { parse_model_config(json, "config.json"); });
  };
  REQUIRE(text_of("{\"num_hidden_layers\": true, \"hidden_size\": 8}").find("num_hidden_layers is true") !=
          std::string::npos);
  REQUIRE(
      text_of("{\"text_config\": {\"num_hidden_layers\": 8, \"hidden_size\": 0}}").find("text_config.hidden_size") !=
      std::string::npos);
  REQUIRE(text_of("{\"num_hidden_layers\": 8, \"hidden_size\": 1e3}").find("whole number") != std::string::npos);
  REQUIRE_THROWS_AS(load_model("no-such-model"), InputError);
}
