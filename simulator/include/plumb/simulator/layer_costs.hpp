// SPDX-License-Identifier: Apache-2.0
//
// layer_costs.hpp: how much work each sublayer of a real model is, and so how long each chunk takes.
//
// Real stages are uneven: full attention now and then between linear attention, a dense first layer among experts, and
// a head as heavy as a layer. Counted are the matrix products (2 floating-point operations per weight used and token)
// and the attention's own products over the sequence; a rate turns them into times. It is NOT a roofline: norms,
// routing, depth attention's own reads, and kernels bound by memory are not in it. The dialect is Kimi's config.json
// (MLA and KDA attention, experts with an optional latent width). Pure; plain values.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plumb/simulator/cost_model.hpp"

namespace plumb {

struct ModelShape {
  std::string name;
  int decoder_layers = 0;
  int hidden = 0;
  int vocabulary = 0;
  std::vector<int> full_attention_layers{};  // ascending, counted from 1 as the configs do; the others are linear

  // Multi-head latent attention, where attention is full.
  int heads = 0;
  int query_rank = 0;  // 0: queries are projected directly
  int key_value_rank = 0;
  int nope_width = 0;  // of a key, without rotary part
  int rope_width = 0;
  int value_width = 0;
  bool output_gate = false;

  // Kimi delta attention, where it is linear.
  int linear_heads = 0;
  int linear_width = 0;  // of a head
  bool full_rank_gate = false;

  int dense_layers = 0;  // the first ones have no experts
  int dense_width = 0;
  int experts = 0;
  int experts_per_token = 0;
  int shared_experts = 0;
  int expert_width = 0;
  int latent_width = 0;  // experts work on this many channels; hidden: on all
};

// A preset by name ("kimi-k3", "kimi-linear-48b"), else the path of a config.json. Throws InputError.
ModelShape load_shape(std::string_view name_or_path);

// `source` names the text in errors.
ModelShape parse_shape(std::string_view json_text, std::string_view source);

struct Parameters {
  double all = 0;
  double used = 0;  // by one token, of the experts only those it is sent to
};

// Of the matrices: embedding, layers and head, without norms, biases and short convolutions.
Parameters parameters(const ModelShape& shape);

struct Work {  // floating-point operations per token
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
};

// One per sublayer, then one for the head. `sequence`: tokens that attend to each other, causally. I repeats the
// products with the weights and twice those within attention; W has those with the weights only. The embedding is a
// look-up and counts nothing.
std::vector<Work> sublayer_work(const ModelShape& shape, int sequence);

struct Rate {
  int tokens = 4096;       // per microbatch
  int sequence = 4096;     // of which this many belong together
  double teraflops = 400;  // reached, by all devices of one pipeline rank together
};

// One per chunk that ends at each of `cuts` (sublayers, as in DepthMap); the head belongs to the last. Throws
// InputError when the cuts are not the shape's, or for a rate that is not positive.
std::vector<ActionTimes> chunk_times(const ModelShape& shape, std::span<const int> cuts, const Rate& rate);

}  // namespace plumb
