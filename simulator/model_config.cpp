// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/model_config.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plumb/schedule/error.hpp"

namespace plumb {

namespace {

using nlohmann::json;

constexpr std::size_t max_config_bytes = std::size_t{16} << 20;
constexpr int max_decoder_layers = 100'000;
constexpr int max_hidden = 1 << 20;

const std::vector<ModelConfig>& presets() {
  // Values as published: Kimi K3's config.json (text_config), Kimi Linear 48B's config.json with the three decoder
  // layers per block of the Attention Residuals paper, which that file does not state.
  static const std::vector<ModelConfig> all = {
      {.name = "kimi-k3", .decoder_layers = 93, .hidden = 7168, .block_decoder_layers = 12},
      {.name = "kimi-linear-48b", .decoder_layers = 27, .hidden = 2304, .block_decoder_layers = 3},
  };
  return all;
}

std::optional<int> read_field(const json& object, std::string_view path, std::string_view field, int most,
                              std::string_view source) {
  const auto found = object.find(field);
  if (found == object.end() || found->is_null()) {
    return std::nullopt;
  }
  if (!found->is_number_integer()) {
    throw InputError(fmt::format("{}: {}{} is {}, a whole number is needed", source, path, field, found->dump()));
  }
  const bool in_range =
      found->is_number_unsigned()
          ? found->get<std::uint64_t>() >= 1 && found->get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
          : false;
  if (!in_range) {
    throw InputError(fmt::format("{}: {}{} is {}, legal are 1 to {}", source, path, field, found->dump(), most));
  }
  return found->get<int>();
}

std::string read_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    throw InputError(fmt::format("{} is a directory, a config.json is needed", path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw InputError(fmt::format("cannot read model '{}': no such file, and the presets are {}", path,
                                 fmt::join(preset_names(), ", ")));
  }
  std::string text;
  text.reserve(4096);
  for (std::istreambuf_iterator<char> it(file), end; it != end; ++it) {
    text.push_back(*it);
    if (text.size() > max_config_bytes) {
      throw InputError(fmt::format("{} is larger than {} MiB, not a config.json", path, max_config_bytes >> 20));
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ModelConfig& preset : presets()) {
    names.push_back(preset.name);
  }
  return names;
}

ModelConfig load_model(std::string_view name_or_path) {
  for (const ModelConfig& preset : presets()) {
    if (preset.name == name_or_path) {
      return preset;
    }
  }
  const std::string path(name_or_path);
  return parse_model_config(read_file(path), path);
}

ModelConfig parse_model_config(std::string_view json_text, std::string_view source) {
  const json document = json::parse(json_text, nullptr, false);
  if (document.is_discarded()) {
    throw InputError(fmt::format("{} is not JSON", source));
  }
  if (!document.is_object()) {
    throw InputError(fmt::format("{} is not a JSON object", source));
  }
  const json* fields = &document;
  std::string path;
  if (const auto nested = document.find("text_config"); nested != document.end()) {
    if (!nested->is_object()) {
      throw InputError(fmt::format("{}: text_config is not an object", source));
    }
    fields = &*nested;
    path = "text_config.";
  }
  const auto required = [&](std::string_view field, int most) {
    const std::optional<int> value = read_field(*fields, path, field, most, source);
    if (!value) {
      throw InputError(fmt::format("{}: no field {}{}", source, path, field));
    }
    return *value;
  };
  ModelConfig config{
      .name = std::string(source),
      .decoder_layers = required("num_hidden_layers", max_decoder_layers),
      .hidden = required("hidden_size", max_hidden),
      .block_decoder_layers = read_field(*fields, path, "attn_res_block_size", max_decoder_layers, source)};
  if (config.block_decoder_layers && *config.block_decoder_layers > config.decoder_layers) {
    throw InputError(fmt::format("{}: {}attn_res_block_size {} is more than num_hidden_layers {}", source, path,
                                 *config.block_decoder_layers, config.decoder_layers));
  }
  return config;
}

int automatic_block_layers(int decoder_layers) {
  constexpr int wanted_blocks = 8;
  return (decoder_layers + wanted_blocks - 1) / wanted_blocks;
}

}  // namespace plumb
