// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/left_out.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "config_fields.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/json_text.hpp"
#include "plumb/sizing/model_config.hpp"

namespace plumb {
namespace {

using nlohmann::json;

struct Part {
  std::string_view field;
  std::string_view what;
};

// Counts of layers; 0 is none.
constexpr std::array counted{Part{"num_nextn_predict_layers", "multi-token prediction"},
                             Part{"num_mtp_layers", "multi-token prediction"},
                             Part{"mtp_num_layers", "multi-token prediction"},
                             Part{"mtp_num_hidden_layers", "multi-token prediction"},
                             Part{"num_mtp_modules", "multi-token prediction"},
                             Part{"mtp_transformer_layers", "multi-token prediction"}};
// What tokens do not see all before them; full attention is counted.
constexpr std::array windows{Part{"sliding_window", "full attention is counted"},
                             Part{"attention_chunk_size", "full attention is counted"},
                             Part{"index_topk", "full attention is counted, and no indexer"}};
// Objects beside the text model.
constexpr std::array encoders{
    Part{"vision_config", "an encoder of pictures"}, Part{"visual_config", "an encoder of pictures"},
    Part{"audio_config", "an encoder of sound"}, Part{"speech_config", "an encoder of sound"}};

const json* find(const json& object, std::string_view field) {
  const auto found = object.find(field);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool is_off(const json& object, std::string_view field) {
  const json* found = find(object, field);
  return found != nullptr && *found == false;
}

bool is_positive(const json& value) { return value.is_number() && value.get<double>() > 0; }

std::string shown(const json& value) {
  constexpr std::size_t longest = 40;
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= longest ? text : text.substr(0, longest) + "...";
}

class Finder {
 public:
  // `prefix`: of the names of the object's fields.
  void look(const json& object, const std::string& prefix) {
    for (const Part& part : counted) {
      const json* found = find(object, part.field);
      if (found && is_positive(*found)) add(prefix, part, shown(*found));
    }
    if (!is_off(object, "use_sliding_window")) {
      for (const Part& part : windows) {
        const json* found = find(object, part.field);
        if (found && is_positive(*found)) add(prefix, part, shown(*found));
      }
    }
    for (const Part& part : encoders) {
      if (const json* found = find(object, part.field); found && found->is_object() && !found->empty()) {
        add(prefix, part, "");
      }
    }
  }

  std::vector<LeftOut> take() { return std::move(parts_); }

 private:
  void add(const std::string& prefix, const Part& part, std::string value) {
    parts_.push_back({prefix + std::string(part.field), std::move(value), std::string(part.what)});
  }

  std::vector<LeftOut> parts_;
};

}  // namespace

std::string to_string(const LeftOut& part) {
  return part.value.empty() ? fmt::format("{} ({})", part.field, part.what)
                            : fmt::format("{}: {} ({})", part.field, part.value, part.what);
}

std::vector<LeftOut> left_out_of(std::string_view name_or_path) {
  const std::vector<std::string> presets = preset_names();
  if (std::find(presets.begin(), presets.end(), name_or_path) != presets.end()) return {};
  const std::string path(name_or_path);
  return parse_left_out(read_config_file(path, presets), path);
}

std::vector<LeftOut> parse_left_out(std::string_view json_text, std::string_view source) {
  require_plain_json(json_text, source);
  const json fields = json::parse(json_text, nullptr, false);
  if (!fields.is_object()) throw InputError(fmt::format("{} is not a JSON object", source));
  Finder finder;
  finder.look(fields, "");
  if (const json* text = find(fields, "text_config"); text && text->is_object()) finder.look(*text, "text_config.");
  return finder.take();
}

}  // namespace plumb
