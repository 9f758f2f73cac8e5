// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/weights.hpp"
#include "support/catch.hpp"

using namespace plumb;

namespace {

ModelShape shape_of(const char* file) { return load_shape(std::string(PLUMB_SIZING_DATA "/") + file); }

// As published, the fields that matter here.
constexpr const char* deepseek_v3 = R"({"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61,
  "vocab_size": 129280, "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536,
  "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432,
  "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
  "first_k_dense_replace": 3, "moe_layer_freq": 1, "topk_method": "noaux_tc", "attention_bias": false,
  "tie_word_embeddings": false})";
constexpr const char* qwen3_8b = R"({"model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36,
  "vocab_size": 151936, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
  "intermediate_size": 12288, "attention_bias": false, "tie_word_embeddings": false})";
constexpr const char* qwen3_30b = R"({"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48,
  "vocab_size": 151936, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
  "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
  "decoder_sparse_step": 1, "mlp_only_layers": [], "tie_word_embeddings": false})";
constexpr const char* qwen3_235b = R"({"model_type": "qwen3_moe", "hidden_size": 4096, "num_hidden_layers": 94,
  "vocab_size": 151936, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128,
  "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8,
  "decoder_sparse_step": 1, "mlp_only_layers": [], "tie_word_embeddings": false})";
constexpr const char* qwen3_next = R"({"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48,
  "vocab_size": 151936, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
  "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
  "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "intermediate_size": 5120, "moe_intermediate_size": 512,
  "shared_expert_intermediate_size": 512, "num_experts": 512, "num_experts_per_tok": 10, "decoder_sparse_step": 1,
  "mlp_only_layers": [], "tie_word_embeddings": false})";
constexpr const char* llama_8b = R"({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
  "vocab_size": 128256, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
  "attention_bias": false, "mlp_bias": false, "tie_word_embeddings": false})";
constexpr const char* llama_1b = R"({"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16,
  "vocab_size": 128256, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
  "intermediate_size": 8192, "tie_word_embeddings": true})";

}  // namespace

TEST_CASE("the published Kimi configs give the published parameter counts to the last one", "[sizing]") {
  CHECK(parameters(shape_of("kimi-linear-48b-a3b-instruct.config.json")).all == 49'122'681'728);
  const Parameters k3 = parameters(shape_of("kimi-k3.config.json"));
  CHECK(k3.all == 2'779'484'478'208);
  CHECK(static_cast<double>(k3.used) == Approx(105.36e9).epsilon(0.0001));
}

TEST_CASE("the presets are the published configs", "[sizing]") {
  for (const auto& [preset, file] :
       {std::pair{"kimi-k3", "kimi-k3.config.json"}, {"kimi-linear-48b", "kimi-linear-48b-a3b-instruct.config.json"}}) {
    ModelShape read = shape_of(file);
    read.name = preset;
    CHECK(read == load_shape(preset));
  }
}

TEST_CASE("DeepSeek, Qwen and Llama configs give their models' parameter counts", "[sizing]") {
  CHECK(parameters(parse_shape(deepseek_v3, "x")).all == 671'026'419'200);
  CHECK(parameters(parse_shape(qwen3_8b, "x")).all == 8'190'735'360);
  CHECK(parameters(parse_shape(qwen3_30b, "x")).all == 30'532'122'624);
  CHECK(parameters(parse_shape(qwen3_235b, "x")).all == 235'093'634'560);
  CHECK(parameters(parse_shape(qwen3_next, "x")).all == 79'674'391'296);
  CHECK(parameters(parse_shape(llama_8b, "x")).all == 8'030'261'248);
  CHECK(parameters(parse_shape(llama_1b, "x")).all == 1'235'814'400);  // the tied head counts once
}

TEST_CASE("a token uses of the experts those it is sent to", "[sizing]") {
  CHECK(static_cast<double>(parameters(parse_shape(deepseek_v3, "x")).used) == Approx(37.5e9).epsilon(0.005));
  CHECK(static_cast<double>(parameters(parse_shape(qwen3_30b, "x")).used) == Approx(3.35e9).epsilon(0.005));
  const Parameters dense = parameters(parse_shape(llama_8b, "x"));
  CHECK(dense.used == dense.all);
}
