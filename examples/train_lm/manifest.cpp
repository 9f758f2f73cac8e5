// SPDX-License-Identifier: Apache-2.0
#include "train_lm/manifest.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plumb/schedule/error.hpp"
#include "plumb/schedule/json_text.hpp"
#include "train_lm/durable_file.hpp"

namespace plumb::lm {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "plumb-train checkpoint";
constexpr int kVersion = 1;

std::string path_of(const std::string& folder) { return folder + "/manifest.json"; }

[[noreturn]] void refuse_manifest(const std::string& folder, std::string_view why) {
  throw InputError(fmt::format("checkpoint {}: {}", path_of(folder), why));
}

// A field of the right type, or one line that names it.
template <class T>
T field(const std::string& folder, const Json& object, const char* section, const char* name) {
  const auto found = object.find(name);
  const bool fits = found != object.end() && (std::is_same_v<T, std::string> ? found->is_string()
                                              : std::is_floating_point_v<T>  ? found->is_number()
                                              : std::is_unsigned_v<T>        ? found->is_number_unsigned()
                                                                             : found->is_number_integer());
  if (!fits) {
    refuse_manifest(folder, fmt::format("field {}.{} is missing or of the wrong type", section, name));
  }
  return found->template get<T>();
}

const Json& section_of(const std::string& folder, const Json& root, const char* name) {
  const auto found = root.find(name);
  if (found == root.end() || !found->is_object()) {
    refuse_manifest(folder, fmt::format("section {} is missing", name));
  }
  return *found;
}

Json read_json(const std::string& folder) {
  std::error_code code;
  if (!std::filesystem::is_directory(folder, code)) {
    throw InputError(fmt::format("checkpoint {}: no such folder", folder));
  }
  if (std::filesystem::exists(path_of(folder), code) && !std::filesystem::is_regular_file(path_of(folder), code)) {
    refuse_manifest(folder, "not a regular file");
  }
  std::ifstream file(path_of(folder), std::ios::binary);
  if (!file) {
    throw InputError(fmt::format("checkpoint {}: no manifest.json, so it is not a finished checkpoint", folder));
  }
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  require_plain_json(text, "checkpoint " + path_of(folder));
  Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded() || !root.is_object() || root.value("format", Json()) != kFormat) {
    refuse_manifest(folder, "damaged, or not a checkpoint of this program");
  }
  if (root.value("version", Json()) != kVersion) {
    refuse_manifest(folder, fmt::format("format version is not {}", kVersion));
  }
  return root;
}

void read_depth(const std::string& folder, const Json& depth, LmConfig& model) {
  const auto mode = field<std::string>(folder, depth, "depth", "mode");
  if (mode != "block" && mode != "full") {
    refuse_manifest(folder, fmt::format("depth.mode '{}' is unknown; one of block, full", mode));
  }
  model.residual = mode == "full" ? Residual::attnres_full : Residual::attnres_block;
  model.block_sublayers = field<int>(folder, depth, "depth", "block_sublayers");
  const auto init = field<std::string>(folder, depth, "depth", "query_init");
  if (init != "zero" && init != "normal") {
    refuse_manifest(folder, fmt::format("depth.query_init '{}' is unknown; one of zero, normal", init));
  }
  model.query_init = init == "normal" ? QueryInit::normal : QueryInit::zero;
}

Json to_json(const CheckpointInfo& info, std::span<const PartFile> parts) {
  const LmConfig& model = info.model;
  Json root;
  root["format"] = kFormat;
  root["version"] = kVersion;
  root["model"] = {{"sublayers", model.num_sublayers},
                   {"hidden", model.width},
                   {"heads", model.heads},
                   {"vocabulary", kVocabulary},
                   {"sequence", model.sequence},
                   {"sequences_per_microbatch", model.sequences},
                   {"eps", model.eps},
                   {"dtype", std::string(to_string(model.dtype))},
                   {"seed", model.seed}};
  if (model.residual != Residual::standard) {
    root["depth"] = {{"mode", model.residual == Residual::attnres_full ? "full" : "block"},
                     {"block_sublayers", model.block_sublayers},
                     {"query_init", model.query_init == QueryInit::normal ? "normal" : "zero"}};
  }
  root["training"] = {
      {"steps", info.num_steps}, {"sequences_drawn", info.sequences_drawn}, {"learning_rate", info.learning_rate}};
  root["parts"] = Json::array();
  for (const PartFile& part : parts) {
    root["parts"].push_back(
        {{"file", part.file}, {"bytes", part.size_bytes}, {"checksum", fmt::format("{:016x}", part.checksum)}});
  }
  return root;
}

}  // namespace

CheckpointInfo read_checkpoint(const std::string& folder) {
  const Json root = read_json(folder);
  CheckpointInfo info;
  const Json& model = section_of(folder, root, "model");
  info.model.num_sublayers = field<int>(folder, model, "model", "sublayers");
  info.model.width = field<std::int64_t>(folder, model, "model", "hidden");
  info.model.heads = field<std::int64_t>(folder, model, "model", "heads");
  info.model.sequence = field<std::int64_t>(folder, model, "model", "sequence");
  info.model.sequences = field<std::int64_t>(folder, model, "model", "sequences_per_microbatch");
  info.model.eps = field<double>(folder, model, "model", "eps");
  info.model.seed = field<std::uint64_t>(folder, model, "model", "seed");
  if (field<std::int64_t>(folder, model, "model", "vocabulary") != kVocabulary) {
    refuse_manifest(folder, fmt::format("model.vocabulary is not {}", kVocabulary));
  }
  const auto dtype = field<std::string>(folder, model, "model", "dtype");
  const std::optional<Storage> storage = storage_from_name(dtype);
  if (!storage) {
    refuse_manifest(folder, fmt::format("model.dtype '{}' is unknown; one of bf16, fp16, fp32, fp64", dtype));
  }
  info.model.dtype = *storage;
  info.model.residual = Residual::standard;
  if (root.contains("depth")) {
    read_depth(folder, section_of(folder, root, "depth"), info.model);
  }
  const Json& training = section_of(folder, root, "training");
  info.num_steps = field<std::int64_t>(folder, training, "training", "steps");
  info.sequences_drawn = field<std::uint64_t>(folder, training, "training", "sequences_drawn");
  info.learning_rate = field<double>(folder, training, "training", "learning_rate");
  if (info.num_steps < 0) {
    refuse_manifest(folder, fmt::format("training.steps is {}, must not be negative", info.num_steps));
  }
  if (!(info.learning_rate >= 0 && info.learning_rate <= 10)) {
    refuse_manifest(folder, fmt::format("training.learning_rate is {}, must lie between 0 and 10", info.learning_rate));
  }
  try {
    validate(info.model);
  } catch (const InputError& error) {
    refuse_manifest(folder, error.what());
  }
  return info;
}

std::vector<PartFile> read_parts(const std::string& folder) {
  const Json root = read_json(folder);
  const auto list = root.find("parts");
  if (list == root.end() || !list->is_array()) {
    refuse_manifest(folder, "section parts is missing");
  }
  std::vector<PartFile> parts;
  for (const Json& entry : *list) {
    PartFile part;
    part.file = field<std::string>(folder, entry, "parts", "file");
    part.size_bytes = field<std::uint64_t>(folder, entry, "parts", "bytes");
    const auto digits = field<std::string>(folder, entry, "parts", "checksum");
    if (part.file.find('/') != std::string::npos || digits.size() != 16 ||
        digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
      refuse_manifest(folder, "an entry of parts is damaged");
    }
    part.checksum = std::stoull(digits, nullptr, 16);
    parts.push_back(part);
  }
  return parts;
}

void commit_checkpoint(const std::string& folder, const CheckpointInfo& info, std::span<const PartFile> parts) {
  write_durably(path_of(folder), to_json(info, parts).dump(1) + "\n");
  std::set<std::string> current;
  for (const PartFile& part : parts) {
    current.insert(part.file);
  }
  // What an earlier checkpoint left behind; failing to remove it harms nobody.
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kPartSuffix) && !current.contains(name)) {
      std::filesystem::remove(entry.path(), code);
    }
  }
}

}  // namespace plumb::lm
