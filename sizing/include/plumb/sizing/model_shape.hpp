// SPDX-License-Identifier: Apache-2.0
//
// model_shape.hpp: the widths of a real model, one plain struct for all dialects of config.json.
//
// Read are the Kimi dialect (MLA and KDA attention, experts with an optional latent width, nested text_config),
// DeepSeek's, Qwen's (dense, MoE, Next) and Llama's. What a model's name implies and its file does not say (norms of
// queries and keys, biases of a router) is filled in from its model_type; everything else must stand in the file. It
// says nothing of cost: see weights.hpp and sublayer_work.hpp. Plain values; layers count from 0 here, whatever the
// file does.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace plumb {

// Multi-head attention; groups of heads may share keys and values.
struct GroupedAttention {
  int heads = 0;
  int key_value_heads = 0;
  int head_width = 0;
  bool query_key_norm = false;  // a norm per head width on both
  bool biases = false;          // of queries, keys and values
  bool output_bias = false;
  bool output_gate = false;  // the query projection is twice as wide
  friend bool operator==(const GroupedAttention&, const GroupedAttention&) = default;
};

// Multi-head latent attention.
struct LatentAttention {
  int heads = 0;
  int query_rank = 0;  // 0: queries are projected directly
  int key_value_rank = 0;
  int nope_width = 0;  // of a key, without rotary part
  int rope_width = 0;
  int value_width = 0;
  bool output_gate = false;
  friend bool operator==(const LatentAttention&, const LatentAttention&) = default;
};

// Attention linear in the sequence by the delta rule: a state of key_width x value_width per head.
struct DeltaAttention {
  int key_heads = 0;
  int value_heads = 0;
  int key_width = 0;
  int value_width = 0;
  int conv_taps = 4;
  bool per_channel_decay = true;  // Kimi's, through a low rank; false: one decay per head (Gated DeltaNet)
  bool full_rank_gate = false;    // Kimi's output gate; Gated DeltaNet's always is
  int decay_entries = 0;          // of A_log: one per head; Kimi K3's checkpoint pads them to the head width
  friend bool operator==(const DeltaAttention&, const DeltaAttention&) = default;
};

struct Mlp {
  int width = 0;
  int matrices = 3;  // 3: gated; 2: up and down
  bool biases = false;
  friend bool operator==(const Mlp&, const Mlp&) = default;
};

struct Experts {
  int count = 0;
  int per_token = 0;
  int width = 0;
  int latent_width = 0;  // experts work on this many channels; 0: on all
  bool latent_norm = false;
  int shared_width = 0;  // of all shared experts together; 0: none
  bool shared_gate = false;
  bool router_bias = false;
  friend bool operator==(const Experts&, const Experts&) = default;
};

struct DecoderLayer {
  bool linear_attention = false;
  bool experts = false;
  friend bool operator==(const DecoderLayer&, const DecoderLayer&) = default;
};

struct ModelShape {
  std::string name;
  int hidden = 0;
  int vocabulary = 0;
  int positions = 0;  // learned ones; 0: none
  bool tied_embeddings = false;
  bool depth_attention = false;  // the model's own weights have it
  bool norm_biases = false;      // LayerNorm instead of RMSNorm
  std::vector<DecoderLayer> layers{};
  std::variant<GroupedAttention, LatentAttention> attention{};
  DeltaAttention delta{};  // of the layers with linear attention
  Mlp mlp{};               // of the layers without experts
  Experts experts{};       // of those with
  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

// A preset by name (preset_names()), else the path of a config.json. Throws InputError.
ModelShape load_shape(std::string_view name_or_path);

// `source` names the text in errors. Throws InputError for a missing or senseless field, and for a model_type whose
// dialect is unknown.
ModelShape parse_shape(std::string_view json_text, std::string_view source);

}  // namespace plumb
