// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/model_config.hpp"

#include <fmt/format.h>

#include "config_fields.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb {

namespace {

constexpr int max_decoder_layers = 100'000;
constexpr int max_hidden = 1 << 20;

const std::vector<ModelConfig>& model_presets() {
  // Values as published: Kimi K3's config.json (text_config), Kimi Linear 48B's config.json with the three decoder
  // layers per block of the Attention Residuals paper, which that file does not state.
  static const std::vector<ModelConfig> all = {
      {.name = "kimi-k3", .decoder_layers = 93, .hidden = 7168, .block_decoder_layers = 12},
      {.name = "kimi-linear-48b", .decoder_layers = 27, .hidden = 2304, .block_decoder_layers = 3},
  };
  return all;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ModelConfig& preset : model_presets()) {
    names.push_back(preset.name);
  }
  return names;
}

ModelConfig load_model(std::string_view name_or_path) {
  for (const ModelConfig& preset : model_presets()) {
    if (preset.name == name_or_path) {
      return preset;
    }
  }
  const std::string path(name_or_path);
  return parse_model_config(read_config_file(path, preset_names()), path);
}

ModelConfig parse_model_config(std::string_view json_text, std::string_view source) {
  const ConfigFields fields(json_text, source);
  ModelConfig config{.name = std::string(source),
                     .decoder_layers = fields.require("num_hidden_layers", max_decoder_layers),
                     .hidden = fields.require("hidden_size", max_hidden),
                     .block_decoder_layers = fields.find("attn_res_block_size", max_decoder_layers)};
  if (config.block_decoder_layers && *config.block_decoder_layers > config.decoder_layers) {
    throw InputError(fmt::format("{}: attn_res_block_size {} is more than num_hidden_layers {}", source,
                                 *config.block_decoder_layers, config.decoder_layers));
  }
  return config;
}

int automatic_block_layers(int decoder_layers) {
  constexpr int wanted_blocks = 8;
  return (decoder_layers + wanted_blocks - 1) / wanted_blocks;
}

}  // namespace plumb
