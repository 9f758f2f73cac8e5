// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/weights.hpp"

namespace plumb {
namespace {

using Weights = std::vector<Weight>;

void add_product(Weights& to, std::string_view name, std::int64_t in, std::int64_t out, Spread spread) {
  to.push_back({.name = name, .in = in, .out = out, .is_product = true, .spread = spread});
}

void add_vector(Weights& to, std::string_view name, std::int64_t entries, Spread spread = Spread::replicated) {
  to.push_back({.name = name, .in = 1, .out = entries, .spread = spread});
}

void add_norm(Weights& to, const ModelShape& shape, std::string_view name) {
  add_vector(to, name, static_cast<std::int64_t>(shape.hidden) * (shape.norm_biases ? 2 : 1));
}

// The norm and the query of the depth attention before a sublayer.
void add_depth_attention(Weights& to, const ModelShape& shape) {
  if (!shape.depth_attention) return;
  add_vector(to, "res_norm", shape.hidden);
  add_vector(to, "res_proj", shape.hidden);
}

void add(Weights& to, const ModelShape& shape, const GroupedAttention& a) {
  const std::int64_t queries = static_cast<std::int64_t>(a.heads) * a.head_width;
  const std::int64_t keys = static_cast<std::int64_t>(a.key_value_heads) * a.head_width;
  add_product(to, "query", shape.hidden, queries * (a.output_gate ? 2 : 1), Spread::columns);
  add_product(to, "key", shape.hidden, keys, Spread::columns);
  add_product(to, "value", shape.hidden, keys, Spread::columns);
  add_product(to, "output", queries, shape.hidden, Spread::rows);
  if (a.biases) add_vector(to, "biases", queries + 2 * keys, Spread::columns);
  if (a.output_bias) add_vector(to, "output_bias", shape.hidden);
  if (a.query_key_norm) add_vector(to, "query_key_norm", 2 * static_cast<std::int64_t>(a.head_width));
}

void add(Weights& to, const ModelShape& shape, const LatentAttention& a) {
  const std::int64_t queries = static_cast<std::int64_t>(a.heads) * (a.nope_width + a.rope_width);
  const std::int64_t values = static_cast<std::int64_t>(a.heads) * a.value_width;
  if (a.query_rank > 0) {
    add_product(to, "query_down", shape.hidden, a.query_rank, Spread::replicated);
    add_vector(to, "query_norm", a.query_rank);
    add_product(to, "query_up", a.query_rank, queries, Spread::columns);
  } else {
    add_product(to, "query", shape.hidden, queries, Spread::columns);
  }
  add_product(to, "key_value_down", shape.hidden, a.key_value_rank + a.rope_width, Spread::replicated);
  add_vector(to, "key_value_norm", a.key_value_rank);
  add_product(to, "key_value_up", a.key_value_rank, static_cast<std::int64_t>(a.heads) * (a.nope_width + a.value_width),
              Spread::columns);
  if (a.output_gate) add_product(to, "output_gate", shape.hidden, values, Spread::columns);
  add_product(to, "output", values, shape.hidden, Spread::rows);
}

void add(Weights& to, const ModelShape& shape, const DeltaAttention& a) {
  const std::int64_t keys = static_cast<std::int64_t>(a.key_heads) * a.key_width;
  const std::int64_t values = static_cast<std::int64_t>(a.value_heads) * a.value_width;
  add_product(to, "query", shape.hidden, keys, Spread::columns);
  add_product(to, "key", shape.hidden, keys, Spread::columns);
  add_product(to, "value", shape.hidden, values, Spread::columns);
  add_vector(to, "convolutions", (2 * keys + values) * a.conv_taps, Spread::columns);
  add_vector(to, "decay", a.decay_entries, Spread::columns);
  add_product(to, "write_strength", shape.hidden, a.value_heads, Spread::columns);
  if (a.per_channel_decay) {
    add_product(to, "decay_down", shape.hidden, a.value_width, Spread::replicated);
    add_product(to, "decay_up", a.value_width, keys, Spread::columns);
    add_vector(to, "decay_bias", keys, Spread::columns);
  } else {
    add_product(to, "decay_input", shape.hidden, a.value_heads, Spread::columns);
    add_vector(to, "decay_bias", a.value_heads, Spread::columns);
  }
  if (a.full_rank_gate || !a.per_channel_decay) {
    add_product(to, "output_gate", shape.hidden, values, Spread::columns);
  } else {
    add_product(to, "gate_down", shape.hidden, a.value_width, Spread::replicated);
    add_product(to, "gate_up", a.value_width, values, Spread::columns);
  }
  add_vector(to, "output_norm", a.value_width);
  add_product(to, "output", values, shape.hidden, Spread::rows);
}

void add_mlp(Weights& to, const ModelShape& shape, std::int64_t width, int matrices, bool biases) {
  add_product(to, "up", shape.hidden, width, Spread::columns);
  if (matrices == 3) add_product(to, "gate", shape.hidden, width, Spread::columns);
  add_product(to, "down", width, shape.hidden, Spread::rows);
  if (biases) {
    add_vector(to, "up_bias", width * (matrices - 1), Spread::columns);
    add_vector(to, "down_bias", shape.hidden);
  }
}

void add_experts(Weights& to, const ModelShape& shape) {
  const Experts& e = shape.experts;
  add_product(to, "router", shape.hidden, e.count, Spread::replicated);
  if (e.router_bias) add_vector(to, "router_bias", e.count);
  const std::int64_t channels = e.latent_width > 0 ? e.latent_width : shape.hidden;
  if (e.latent_width > 0) {
    add_product(to, "latent_down", shape.hidden, channels, Spread::replicated);
    if (e.latent_norm) add_vector(to, "latent_norm", channels);
    add_product(to, "latent_up", channels, shape.hidden, Spread::replicated);
  }
  const auto add_expert = [&](std::string_view name, std::int64_t in, std::int64_t out) {
    add_product(to, name, in, out, Spread::experts);
    to.back().copies = e.count;
    to.back().used = e.per_token;
  };
  add_expert("expert_up", channels, e.width);
  add_expert("expert_gate", channels, e.width);
  add_expert("expert_down", e.width, channels);
  if (e.shared_width > 0) add_mlp(to, shape, e.shared_width, 3, false);
  if (e.shared_gate) add_product(to, "shared_gate", shape.hidden, 1, Spread::replicated);
}

}  // namespace

Weights attention_weights(const ModelShape& shape, int layer) {
  Weights weights;
  add_depth_attention(weights, shape);
  add_norm(weights, shape, "norm");
  if (shape.layers[static_cast<std::size_t>(layer)].linear_attention) {
    add(weights, shape, shape.delta);
  } else {
    std::visit([&](const auto& attention) { add(weights, shape, attention); }, shape.attention);
  }
  return weights;
}

Weights mlp_weights(const ModelShape& shape, int layer) {
  Weights weights;
  add_depth_attention(weights, shape);
  add_norm(weights, shape, "norm");
  if (shape.layers[static_cast<std::size_t>(layer)].experts) {
    add_experts(weights, shape);
  } else {
    add_mlp(weights, shape, shape.mlp.width, shape.mlp.matrices, shape.mlp.biases);
  }
  return weights;
}

Weights embedding_weights(const ModelShape& shape) {
  Weights weights;
  const std::int64_t entries = static_cast<std::int64_t>(shape.vocabulary) * shape.hidden;
  add_vector(weights, "embedding", entries, Spread::columns);
  if (shape.positions > 0) add_vector(weights, "positions", static_cast<std::int64_t>(shape.positions) * shape.hidden);
  return weights;
}

Weights head_weights(const ModelShape& shape) {
  Weights weights;
  add_depth_attention(weights, shape);
  add_norm(weights, shape, "norm");
  add_product(weights, "head", shape.hidden, shape.vocabulary, Spread::columns);
  if (shape.tied_embeddings) weights.back().copies = 0;
  return weights;
}

Parameters count(const Weights& weights) {
  Parameters sum;
  for (const Weight& weight : weights) {
    sum.all += weight.parameters();
    sum.used += weight.copies == 0 ? 0 : weight.parameters_used();
  }
  return sum;
}

Parameters parameters(const ModelShape& shape) {
  Parameters sum;
  const auto add_up = [&](const Weights& weights) {
    const Parameters more = count(weights);
    sum.all += more.all;
    sum.used += more.used;
  };
  add_up(embedding_weights(shape));
  for (int layer = 0; layer < static_cast<int>(shape.layers.size()); ++layer) {
    add_up(attention_weights(shape, layer));
    add_up(mlp_weights(shape, layer));
  }
  add_up(head_weights(shape));
  return sum;
}

}  // namespace plumb
