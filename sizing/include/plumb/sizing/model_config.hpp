// SPDX-License-Identifier: Apache-2.0
//
// model_config.hpp: depth and width of a published model, from a preset or a Hugging Face config.json.
//
// Configs count decoder layers; one decoder layer is two sublayers (attention and MLP), and attn_res_block_size counts
// decoder layers per block. The conversion happens here and nowhere else. Fields may be nested in `text_config`.
// Nothing is guessed: a missing field is an InputError that names it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plumb {

inline constexpr int sublayers_per_decoder_layer = 2;

struct ModelConfig {
  std::string name;
  int decoder_layers = 0;
  int hidden = 0;
  std::optional<int> block_decoder_layers;  // absent: the model has no depth attention

  int sublayers() const { return decoder_layers * sublayers_per_decoder_layer; }
};

// "kimi-k3", "kimi-linear-48b".
std::vector<std::string> preset_names();

// A preset by name, else the path of a config.json. Throws InputError.
ModelConfig load_model(std::string_view name_or_path);

// `source` names the text in errors. Reads num_hidden_layers, hidden_size and, if present, attn_res_block_size.
ModelConfig parse_model_config(std::string_view json_text, std::string_view source);

// Decoder layers per block when nothing says so: ceil(layers / 8), about eight blocks (93 -> 12).
int automatic_block_layers(int decoder_layers);

}  // namespace plumb
