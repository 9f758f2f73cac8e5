// SPDX-License-Identifier: Apache-2.0
#include "config_fields.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "plumb/schedule/json_text.hpp"

namespace plumb {
namespace {

using nlohmann::json;

constexpr std::size_t max_config_bytes = std::size_t{16} << 20;

}  // namespace

std::string read_config_file(const std::string& path, const std::vector<std::string>& presets) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    throw InputError(fmt::format("{} is a directory, a config.json is needed", path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw InputError(
        fmt::format("cannot read model '{}': no such file, and the presets are {}", path, fmt::join(presets, ", ")));
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

ConfigFields::ConfigFields(std::string_view json_text, std::string_view source) : source_(source) {
  require_plain_json(json_text, source);
  fields_ = json::parse(json_text, nullptr, false);
  if (fields_.is_discarded()) {
    throw InputError(fmt::format("{} is not JSON", source));
  }
  if (!fields_.is_object()) {
    throw InputError(fmt::format("{} is not a JSON object", source));
  }
  if (const auto nested = fields_.find("text_config"); nested != fields_.end()) {
    if (!nested->is_object()) {
      throw InputError(fmt::format("{}: text_config is not an object", source));
    }
    json inner = std::move(*nested);
    fields_ = std::move(inner);
    path_ = "text_config.";
  }
}

const json* ConfigFields::value(std::string_view field) const {
  const json* object = &fields_;
  while (true) {
    const std::size_t dot = field.find('.');
    const auto found = object->find(field.substr(0, dot));
    if (found == object->end() || found->is_null()) {
      return nullptr;
    }
    if (dot == std::string_view::npos) {
      return &*found;
    }
    if (!found->is_object()) {
      throw InputError(fmt::format("{}: {}{} is not an object", source_, path_, field.substr(0, dot)));
    }
    object = &*found;
    field.remove_prefix(dot + 1);
  }
}

int ConfigFields::checked(const json& value, std::string_view field, int most) const {
  if (!value.is_number_integer()) {
    throw InputError(fmt::format("{}: {}{} is {}, a whole number is needed", source_, path_, field, value.dump()));
  }
  const bool in_range = value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
                        value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
  if (!in_range) {
    throw InputError(fmt::format("{}: {}{} is {}, legal are 1 to {}", source_, path_, field, value.dump(), most));
  }
  return value.get<int>();
}

std::optional<int> ConfigFields::find(std::string_view field, int most) const {
  const json* found = value(field);
  if (found == nullptr) {
    return std::nullopt;
  }
  return checked(*found, field, most);
}

int ConfigFields::require(std::string_view field, int most) const {
  const std::optional<int> found = find(field, most);
  if (!found) {
    throw InputError(fmt::format("{}: no field {}{}", source_, path_, field));
  }
  return *found;
}

bool ConfigFields::flag(std::string_view field) const {
  const json* found = value(field);
  if (found == nullptr) {
    return false;
  }
  if (!found->is_boolean()) {
    throw InputError(fmt::format("{}: {}{} is {}, true or false is needed", source_, path_, field, found->dump()));
  }
  return found->get<bool>();
}

int ConfigFields::count(std::string_view field, int most) const {
  const json* found = value(field);
  if (found == nullptr || *found == 0) return 0;
  return checked(*found, field, most);
}

std::string ConfigFields::text(std::string_view field) const {
  const json* found = value(field);
  if (found == nullptr) return "";
  if (!found->is_string()) refuse(field, fmt::format("is {}, a text is needed", found->dump()));
  return found->get<std::string>();
}

std::string_view ConfigFields::first_of(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    if (has(name)) return name;
  }
  return *(names.end() - 1);
}

void ConfigFields::refuse(std::string_view field, std::string_view why) const {
  throw InputError(fmt::format("{}: {}{} {}", source_, path_, field, why));
}

std::vector<int> ConfigFields::whole_numbers(std::string_view field, int most) const {
  std::vector<int> numbers;
  const json* found = value(field);
  if (found == nullptr) return numbers;
  if (!found->is_array()) refuse(field, "is not a list");
  for (const json& item : *found)
    numbers.push_back(item == 0 ? 0 : checked(item, field, most));
  return numbers;
}

std::vector<int> ConfigFields::require_list(std::string_view field, int most) const {
  const json* found = value(field);
  if (found == nullptr) {
    throw InputError(fmt::format("{}: no field {}{}", source_, path_, field));
  }
  if (!found->is_array()) {
    throw InputError(fmt::format("{}: {}{} is not a list", source_, path_, field));
  }
  std::vector<int> numbers;
  for (const json& item : *found) {
    numbers.push_back(checked(item, field, most));
    if (numbers.size() > 1 && numbers.back() <= numbers[numbers.size() - 2]) {
      throw InputError(fmt::format("{}: {}{} does not ascend at {}", source_, path_, field, numbers.back()));
    }
  }
  return numbers;
}

}  // namespace plumb
