// SPDX-License-Identifier: Apache-2.0
//
// config_fields.hpp (private): numbers out of a Hugging Face config.json; every refusal names file and field.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace plumb {

// Throws InputError when the file cannot be read; `presets` are the names that would have been understood.
std::string read_config_file(const std::string& path, const std::vector<std::string>& presets);

class ConfigFields {
 public:
  // Fields may be nested in `text_config`. Throws InputError unless the text is a JSON object.
  ConfigFields(std::string_view json_text, std::string_view source);

  // Whole numbers 1..most, else InputError; absent or null: nothing. "a.b" names a field of the object a.
  std::optional<int> find(std::string_view field, int most) const;
  int require(std::string_view field, int most) const;
  // Absent: false.
  bool flag(std::string_view field) const;
  // A whole number 0..most, absent or null: 0.
  int count(std::string_view field, int most) const;
  // Absent or null: "".
  std::string text(std::string_view field) const;
  bool has(std::string_view field) const { return value(field) != nullptr; }
  // The first of these names that the file uses, else the last: dialects call one thing differently.
  std::string_view first_of(std::initializer_list<std::string_view> names) const;
  [[noreturn]] void refuse(std::string_view field, std::string_view why) const;
  // Ascending whole numbers 1..most, else InputError.
  std::vector<int> require_list(std::string_view field, int most) const;
  // Whole numbers 0..most in any order, else InputError; absent: none.
  std::vector<int> whole_numbers(std::string_view field, int most) const;

 private:
  const nlohmann::json* value(std::string_view field) const;  // null: absent
  int checked(const nlohmann::json& value, std::string_view field, int most) const;

  nlohmann::json fields_;
  std::string source_;
  std::string path_;  // "text_config." or nothing
};

}  // namespace plumb
