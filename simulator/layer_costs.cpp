// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/layer_costs.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "config_fields.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/model_config.hpp"

namespace plumb {
namespace {

constexpr int max_layers = 100'000;
constexpr int max_width = 1 << 22;

std::vector<int> every_fourth_and_last(int layers) {
  std::vector<int> full;
  for (int layer = 4; layer < layers; layer += 4)
    full.push_back(layer);
  full.push_back(layers);
  return full;
}

// As published in the models' config.json.
ModelShape kimi_k3() {
  return {.name = "kimi-k3",
          .decoder_layers = 93,
          .hidden = 7168,
          .vocabulary = 163840,
          .full_attention_layers = every_fourth_and_last(93),
          .heads = 96,
          .query_rank = 1536,
          .key_value_rank = 512,
          .nope_width = 128,
          .rope_width = 64,
          .value_width = 128,
          .output_gate = true,
          .linear_heads = 96,
          .linear_width = 128,
          .full_rank_gate = true,
          .dense_layers = 1,
          .dense_width = 33792,
          .experts = 896,
          .experts_per_token = 16,
          .shared_experts = 2,
          .expert_width = 3072,
          .latent_width = 3584};
}

ModelShape kimi_linear_48b() {
  return {.name = "kimi-linear-48b",
          .decoder_layers = 27,
          .hidden = 2304,
          .vocabulary = 163840,
          .full_attention_layers = every_fourth_and_last(27),
          .heads = 32,
          .query_rank = 0,
          .key_value_rank = 512,
          .nope_width = 128,
          .rope_width = 64,
          .value_width = 128,
          .output_gate = false,
          .linear_heads = 32,
          .linear_width = 128,
          .full_rank_gate = false,
          .dense_layers = 1,
          .dense_width = 9216,
          .experts = 256,
          .experts_per_token = 8,
          .shared_experts = 1,
          .expert_width = 1024,
          .latent_width = 2304};
}

bool is_full(const ModelShape& shape, int layer) {
  return std::binary_search(shape.full_attention_layers.begin(), shape.full_attention_layers.end(), layer + 1);
}

double full_attention_parameters(const ModelShape& shape) {
  const double hidden = shape.hidden;
  const double queries = static_cast<double>(shape.heads) * (shape.nope_width + shape.rope_width);
  const double values = static_cast<double>(shape.heads) * shape.value_width;
  const double rank = shape.query_rank;
  const double query = shape.query_rank > 0 ? hidden * rank + rank * queries : hidden * queries;
  const double down = hidden * (shape.key_value_rank + shape.rope_width);
  const double up = static_cast<double>(shape.key_value_rank) * shape.heads * (shape.nope_width + shape.value_width);
  return query + down + up + hidden * values * (shape.output_gate ? 2 : 1);
}

double linear_attention_parameters(const ModelShape& shape) {
  const double hidden = shape.hidden;
  const double width = static_cast<double>(shape.linear_heads) * shape.linear_width;
  const double low_rank = (hidden + width) * shape.linear_width;
  return 4 * hidden * width + (shape.full_rank_gate ? hidden * width : low_rank) + low_rank +
         hidden * shape.linear_heads;
}

double attention_parameters(const ModelShape& shape, int layer) {
  return is_full(shape, layer) ? full_attention_parameters(shape) : linear_attention_parameters(shape);
}

// Products of queries, keys and values. A query meets half the sequence on average. Linear attention meets a state of
// width x width per head: what the key holds of it is read, the correction written, and the query reads the result.
double core_flops(const ModelShape& shape, int layer, int sequence) {
  if (is_full(shape, layer)) {
    return static_cast<double>(shape.heads) * (shape.nope_width + shape.rope_width + shape.value_width) *
           (static_cast<double>(sequence) + 1);
  }
  return 6.0 * shape.linear_heads * shape.linear_width * shape.linear_width;
}

Parameters mlp_parameters(const ModelShape& shape, int layer) {
  const double hidden = shape.hidden;
  if (layer < shape.dense_layers) {
    const double dense = 3 * hidden * shape.dense_width;
    return {dense, dense};
  }
  const double expert = 3.0 * shape.latent_width * shape.expert_width;
  const double latent = shape.latent_width == shape.hidden ? 0 : 2 * hidden * shape.latent_width;
  const double always = latent + hidden * shape.experts + 3 * hidden * shape.expert_width * shape.shared_experts;
  return {always + expert * shape.experts, always + expert * shape.experts_per_token};
}

Work work_of(double used_parameters, double core) {
  return {2 * used_parameters + core, 2 * used_parameters + 2 * core, 2 * used_parameters};
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
  ModelShape shape{.name = std::string(source),
                   .decoder_layers = fields.require("num_hidden_layers", max_layers),
                   .hidden = fields.require("hidden_size", max_width),
                   .vocabulary = fields.require("vocab_size", max_width)};
  const int layers = shape.decoder_layers;
  shape.full_attention_layers = fields.require_list("linear_attn_config.full_attn_layers", layers);
  shape.heads = fields.require("num_attention_heads", max_width);
  shape.query_rank = fields.find("q_lora_rank", max_width).value_or(0);
  shape.key_value_rank = fields.require("kv_lora_rank", max_width);
  shape.nope_width = fields.require("qk_nope_head_dim", max_width);
  shape.rope_width = fields.require("qk_rope_head_dim", max_width);
  shape.value_width = fields.require("v_head_dim", max_width);
  shape.output_gate = fields.flag("mla_use_output_gate");
  shape.linear_heads = fields.require("linear_attn_config.num_heads", max_width);
  shape.linear_width = fields.require("linear_attn_config.head_dim", max_width);
  shape.full_rank_gate = fields.flag("linear_attn_config.use_full_rank_gate");
  shape.dense_layers = fields.find("first_k_dense_replace", layers).value_or(0);
  shape.dense_width = fields.require("intermediate_size", max_width);
  shape.experts = fields.require("num_experts", max_width);
  shape.experts_per_token = fields.require("num_experts_per_token", shape.experts);
  shape.shared_experts = fields.find("num_shared_experts", max_width).value_or(0);
  shape.expert_width = fields.require("moe_intermediate_size", max_width);
  shape.latent_width = fields.find("routed_expert_hidden_size", max_width).value_or(shape.hidden);
  return shape;
}

Parameters parameters(const ModelShape& shape) {
  const double ends = 2.0 * shape.vocabulary * shape.hidden;
  Parameters sum{ends, ends};
  for (int layer = 0; layer < shape.decoder_layers; ++layer) {
    const double attention = attention_parameters(shape, layer);
    const Parameters mlp = mlp_parameters(shape, layer);
    sum.all += attention + mlp.all;
    sum.used += attention + mlp.used;
  }
  return sum;
}

std::vector<Work> sublayer_work(const ModelShape& shape, int sequence) {
  std::vector<Work> work;
  for (int layer = 0; layer < shape.decoder_layers; ++layer) {
    work.push_back(work_of(attention_parameters(shape, layer), core_flops(shape, layer, sequence)));
    work.push_back(work_of(mlp_parameters(shape, layer).used, 0));
  }
  work.push_back(work_of(static_cast<double>(shape.vocabulary) * shape.hidden, 0));
  return work;
}

std::vector<ActionTimes> chunk_times(const ModelShape& shape, std::span<const int> cuts, const Rate& rate) {
  const int sublayers = shape.decoder_layers * sublayers_per_decoder_layer;
  if (cuts.empty() || cuts.back() != sublayers || cuts.front() < 0 || !std::is_sorted(cuts.begin(), cuts.end())) {
    throw InputError(fmt::format("{} has {} sublayers: the chunks must end in ascending order, the last there",
                                 shape.name, sublayers));
  }
  if (rate.tokens < 1 || rate.sequence < 1 || !(rate.teraflops > 0)) {
    throw InputError(fmt::format("{} tokens in sequences of {} at {} TFLOP/s: all must be more than 0", rate.tokens,
                                 rate.sequence, rate.teraflops));
  }
  const std::vector<Work> work = sublayer_work(shape, rate.sequence);
  const double us_per_flop = rate.tokens / (rate.teraflops * 1e6);
  std::vector<ActionTimes> times;
  std::size_t at = 0;
  for (std::size_t chunk = 0; chunk < cuts.size(); ++chunk) {
    const std::size_t end = static_cast<std::size_t>(cuts[chunk]) + (chunk + 1 == cuts.size() ? 1 : 0);
    Work sum;
    for (; at < end; ++at) {
      sum.forward += work[at].forward;
      sum.backward_input += work[at].backward_input;
      sum.backward_weight += work[at].backward_weight;
    }
    times.push_back(action_times(from_us(sum.forward * us_per_flop, "the time of F"),
                                 from_us(sum.backward_input * us_per_flop, "the time of I"),
                                 from_us(sum.backward_weight * us_per_flop, "the time of W")));
  }
  return times;
}

}  // namespace plumb
