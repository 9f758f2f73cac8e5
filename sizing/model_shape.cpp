// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/model_shape.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "config_fields.hpp"
#include "did_you_mean.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/sizing/model_config.hpp"
#include "plumb/sizing/weights.hpp"

namespace plumb {
namespace {

constexpr int max_layers = 100'000;
constexpr int max_width = 1 << 18;
constexpr int max_mlp_width = 1 << 20;
constexpr int max_vocabulary = 1 << 24;
constexpr int max_experts = 1 << 16;
constexpr int max_shared_experts = 1 << 10;
constexpr double max_parameters = 1e16;

constexpr std::array<std::string_view, 13> dialects{
    "kimi_linear", "kimi_k3",   "deepseek_v2", "deepseek_v3", "llama",      "mistral", "mixtral",
    "qwen2",       "qwen2_moe", "qwen3",       "qwen3_moe",   "qwen3_next", ""};

std::vector<DecoderLayer> kimi_layers(int count) {
  std::vector<DecoderLayer> layers;
  for (int layer = 1; layer <= count; ++layer) {
    layers.push_back({.linear_attention = layer % 4 != 0 && layer != count, .experts = layer > 1});
  }
  return layers;
}

// As published in the models' config.json.
ModelShape kimi_k3() {
  return {.name = "kimi-k3",
          .hidden = 7168,
          .vocabulary = 163840,
          .depth_attention = true,
          .layers = kimi_layers(93),
          .attention = LatentAttention{.heads = 96,
                                       .query_rank = 1536,
                                       .key_value_rank = 512,
                                       .nope_width = 128,
                                       .rope_width = 64,
                                       .value_width = 128,
                                       .output_gate = true},
          .delta = {.key_heads = 96,
                    .value_heads = 96,
                    .key_width = 128,
                    .value_width = 128,
                    .full_rank_gate = true,
                    .decay_entries = 128},
          .mlp = {.width = 33792},
          .experts = {.count = 896,
                      .per_token = 16,
                      .width = 3072,
                      .latent_width = 3584,
                      .latent_norm = true,
                      .shared_width = 2 * 3072,
                      .router_bias = true}};
}

ModelShape kimi_linear_48b() {
  return {
      .name = "kimi-linear-48b",
      .hidden = 2304,
      .vocabulary = 163840,
      .layers = kimi_layers(27),
      .attention =
          LatentAttention{.heads = 32, .key_value_rank = 512, .nope_width = 128, .rope_width = 64, .value_width = 128},
      .delta = {.key_heads = 32, .value_heads = 32, .key_width = 128, .value_width = 128, .decay_entries = 32},
      .mlp = {.width = 9216},
      .experts = {.count = 256, .per_token = 8, .width = 1024, .shared_width = 1024, .router_bias = true}};
}

LatentAttention latent_attention(const ConfigFields& fields) {
  return {.heads = fields.require("num_attention_heads", max_width),
          .query_rank = fields.find("q_lora_rank", max_width).value_or(0),
          .key_value_rank = fields.require("kv_lora_rank", max_width),
          .nope_width = fields.require("qk_nope_head_dim", max_width),
          .rope_width = fields.require("qk_rope_head_dim", max_width),
          .value_width = fields.require("v_head_dim", max_width),
          .output_gate = fields.flag("mla_use_output_gate")};
}

GroupedAttention grouped_attention(const ConfigFields& fields, const std::string& dialect, int hidden) {
  GroupedAttention attention{.heads = fields.require("num_attention_heads", max_width)};
  attention.key_value_heads = fields.find("num_key_value_heads", attention.heads).value_or(attention.heads);
  if (attention.heads % attention.key_value_heads != 0) {
    fields.refuse("num_key_value_heads", fmt::format("is {}, which does not divide the {} num_attention_heads",
                                                     attention.key_value_heads, attention.heads));
  }
  if (!fields.has("head_dim") && hidden % attention.heads != 0) {
    fields.refuse("num_attention_heads", fmt::format("is {}, which does not divide hidden_size {}, and there is no "
                                                     "head_dim",
                                                     attention.heads, hidden));
  }
  attention.head_width = fields.find("head_dim", max_width).value_or(hidden / attention.heads);
  attention.query_key_norm = dialect.starts_with("qwen3");
  attention.output_gate = dialect == "qwen3_next";
  const bool asked = fields.flag("attention_bias");
  attention.biases = asked || dialect.starts_with("qwen2");
  attention.output_bias = asked;
  return attention;
}

DeltaAttention kimi_delta(const ConfigFields& fields) {
  const int heads = fields.require("linear_attn_config.num_heads", max_width);
  const int width = fields.require("linear_attn_config.head_dim", max_width);
  // Where the decay is bounded, as in K3, its entries are stored padded to the head width.
  const bool padded = fields.has("linear_attn_config.gate_lower_bound");
  return {.key_heads = heads,
          .value_heads = heads,
          .key_width = width,
          .value_width = width,
          .conv_taps = fields.find("linear_attn_config.short_conv_kernel_size", max_width).value_or(4),
          .full_rank_gate = fields.flag("linear_attn_config.use_full_rank_gate"),
          .decay_entries = padded ? std::max(heads, width) : heads};
}

// Both lists count from 1, and every layer stands in exactly one.
void read_kimi_layers(const ConfigFields& fields, std::vector<DecoderLayer>& layers) {
  const int count = static_cast<int>(layers.size());
  constexpr std::string_view full_list = "linear_attn_config.full_attn_layers";
  constexpr std::string_view linear_list = "linear_attn_config.kda_layers";
  for (DecoderLayer& layer : layers)
    layer.linear_attention = true;
  for (const int layer : fields.require_list(full_list, count))
    layers[static_cast<std::size_t>(layer) - 1].linear_attention = false;
  if (!fields.has(linear_list)) return;
  std::vector<bool> named(layers.size());
  for (const int layer : fields.require_list(linear_list, count)) {
    if (!layers[static_cast<std::size_t>(layer) - 1].linear_attention) {
      fields.refuse(linear_list, fmt::format("names layer {}, which stands in full_attn_layers too", layer));
    }
    named[static_cast<std::size_t>(layer) - 1] = true;
  }
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    if (layers[layer].linear_attention && !named[layer]) {
      fields.refuse(linear_list,
                    fmt::format("lacks layer {} (they count from 1), which full_attn_layers lacks too", layer + 1));
    }
  }
}

// Qwen3-Next: every interval-th layer has full attention.
DeltaAttention gated_delta(const ConfigFields& fields, std::vector<DecoderLayer>& layers) {
  const int interval = fields.require("full_attention_interval", max_layers);
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    layers[layer].linear_attention = (layer + 1) % static_cast<std::size_t>(interval) != 0;
  const int value_heads = fields.require("linear_num_value_heads", max_width);
  return {.key_heads = fields.require("linear_num_key_heads", max_width),
          .value_heads = value_heads,
          .key_width = fields.require("linear_key_head_dim", max_width),
          .value_width = fields.require("linear_value_head_dim", max_width),
          .conv_taps = fields.find("linear_conv_kernel_dim", max_width).value_or(4),
          .per_channel_decay = false,
          .decay_entries = value_heads};
}

// Which layers have experts. Kimi and DeepSeek count from the first, Qwen's step from 1.
void read_expert_layers(const ConfigFields& fields, std::vector<DecoderLayer>& layers) {
  const auto first = static_cast<std::size_t>(fields.count("first_k_dense_replace", static_cast<int>(layers.size())));
  const auto every = static_cast<std::size_t>(fields.find("moe_layer_freq", max_layers).value_or(1));
  const auto step = static_cast<std::size_t>(fields.find("decoder_sparse_step", max_layers).value_or(1));
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    layers[layer].experts = layer >= first && layer % every == 0 && (layer + 1) % step == 0;
  if (!fields.has("mlp_only_layers")) return;
  for (const int layer : fields.whole_numbers("mlp_only_layers", static_cast<int>(layers.size()) - 1))
    layers[static_cast<std::size_t>(layer)].experts = false;
}

Experts read_experts(const ConfigFields& fields, std::string_view count_field, const std::string& dialect) {
  Experts experts{.count = fields.require(count_field, max_experts)};
  experts.per_token = fields.require(fields.first_of({"num_experts_per_tok", "num_experts_per_token"}), experts.count);
  // Mixtral has no width of its own for experts.
  experts.width = fields.require(fields.first_of({"moe_intermediate_size", "intermediate_size"}), max_width);
  experts.latent_width = fields.count("routed_expert_hidden_size", max_width);
  experts.latent_norm = fields.flag("latent_moe_use_norm");
  if (fields.has("shared_expert_intermediate_size")) {
    experts.shared_width = fields.count("shared_expert_intermediate_size", max_width);
    experts.shared_gate = experts.shared_width > 0;
  } else {
    const std::string_view shared = fields.first_of({"num_shared_experts", "n_shared_experts"});
    experts.shared_width = experts.width * fields.count(shared, max_shared_experts);
  }
  experts.router_bias = dialect.starts_with("kimi") || fields.text("topk_method") == "noaux_tc";
  return experts;
}

// In floating point, so that a senseless file cannot overflow the exact count.
void require_countable(const ModelShape& shape, std::string_view source) {
  double sum = 0;
  const auto add_up = [&](const std::vector<Weight>& weights) {
    for (const Weight& weight : weights)
      sum += static_cast<double>(weight.in) * static_cast<double>(weight.out) * static_cast<double>(weight.copies);
  };
  for (int layer = 0; layer < static_cast<int>(shape.layers.size()); ++layer) {
    add_up(attention_weights(shape, layer));
    add_up(mlp_weights(shape, layer));
  }
  if (sum > max_parameters) {
    throw InputError(
        fmt::format("{}: its widths make {:.3g} parameters, legal are {:.0g}", source, sum, max_parameters));
  }
}

}  // namespace

ModelShape load_shape(std::string_view name_or_path) {
  for (const ModelShape& preset : {kimi_k3(), kimi_linear_48b()}) {
    if (preset.name == name_or_path) return preset;
  }
  const std::string path(name_or_path);
  return parse_shape(read_config_file(path, preset_names()), path);
}

ModelShape parse_shape(std::string_view json_text, std::string_view source) {
  const ConfigFields fields(json_text, source);
  const std::string dialect = fields.text("model_type");
  if (std::find(dialects.begin(), dialects.end(), dialect) == dialects.end()) {
    fields.refuse("model_type",
                  fmt::format("is '{}', whose layers are not known here{}; known are {}", dialect,
                              did_you_mean(dialect, dialects), fmt::join(dialects.begin(), dialects.end() - 1, ", ")));
  }
  ModelShape shape{
      .name = std::string(source),
      .hidden = fields.require("hidden_size", max_width),
      .vocabulary = fields.require("vocab_size", max_vocabulary),
      .tied_embeddings = fields.flag("tie_word_embeddings"),
      .depth_attention = fields.has("attn_res_block_size"),
      .layers = std::vector<DecoderLayer>(static_cast<std::size_t>(fields.require("num_hidden_layers", max_layers)))};
  if (fields.has("kv_lora_rank")) {
    shape.attention = latent_attention(fields);
  } else {
    shape.attention = grouped_attention(fields, dialect, shape.hidden);
  }
  if (fields.has("linear_attn_config")) {
    read_kimi_layers(fields, shape.layers);
    shape.delta = kimi_delta(fields);
  } else if (fields.has("linear_num_value_heads")) {
    shape.delta = gated_delta(fields, shape.layers);
  }
  const std::string_view experts = fields.first_of({"num_experts", "n_routed_experts", "num_local_experts"});
  if (fields.count(experts, max_experts) > 0) {
    read_expert_layers(fields, shape.layers);
    shape.experts = read_experts(fields, experts, dialect);
  }
  const bool any_dense =
      std::any_of(shape.layers.begin(), shape.layers.end(), [](const DecoderLayer& layer) { return !layer.experts; });
  if (any_dense) {
    shape.mlp = {.width = fields.require("intermediate_size", max_mlp_width), .biases = fields.flag("mlp_bias")};
  }
  require_countable(shape, source);
  return shape;
}

}  // namespace plumb
