// SPDX-License-Identifier: Apache-2.0
#include "encode_node.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

// Foreign text for a one-line message: printable ASCII, not too long.
std::string shown(std::string_view text) {
  constexpr std::size_t most = 40;
  std::string result;
  for (const char c : text.substr(0, most)) {
    result += c >= ' ' && c <= '~' ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return text.size() > most ? result + "..." : result;
}

}  // namespace

void JsonNode::require_keys(std::initializer_list<std::string_view> keys) const {
  if (!value_->is_object()) fail(fmt::format("must be an object, found {}", value_->type_name()));
  for (const auto& item : value_->items()) {
    if (std::find(keys.begin(), keys.end(), item.key()) == keys.end()) {
      fail(fmt::format("has an unknown key \"{}\"; the keys are {}", shown(item.key()), fmt::join(keys, ", ")));
    }
  }
  for (const std::string_view key : keys) {
    if (!has(key)) fail(fmt::format("lacks \"{}\"", key));
  }
}

bool JsonNode::has(std::string_view key) const {
  if (!value_->is_object()) return false;
  const auto& object = value_->get_ref<const Json::object_t&>();
  return std::any_of(object.begin(), object.end(), [&](const auto& item) { return item.first == key; });
}

JsonNode JsonNode::operator[](std::string_view key) const {
  const auto& object = value_->get_ref<const Json::object_t&>();
  const auto item = std::find_if(object.begin(), object.end(), [&](const auto& entry) { return entry.first == key; });
  return JsonNode(item->second, this, key, 0);
}

std::size_t JsonNode::size() const {
  if (!value_->is_array()) fail(fmt::format("must be an array, found {}", value_->type_name()));
  return value_->size();
}

void JsonNode::require_size(std::size_t length) const {
  if (size() != length) fail(fmt::format("has {} entries, it must have {}", size(), length));
}

JsonNode JsonNode::operator[](std::size_t index) const { return JsonNode((*value_)[index], this, {}, index); }

std::int32_t JsonNode::integer(std::int64_t lowest, std::int64_t highest) const {
  if (!value_->is_number_integer()) fail(fmt::format("must be an integer, found {}", value_->type_name()));
  const auto out_of_range = [&](const auto& value) {
    fail(highest < lowest ? fmt::format("is {}, but nothing it could refer to exists", value)
                          : fmt::format("is {}, it must be {}..{}", value, lowest, highest));
  };
  if (value_->is_number_unsigned() && value_->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
    out_of_range(value_->get<std::uint64_t>());
  }
  const auto value = value_->get<std::int64_t>();
  if (value < lowest || value > highest) out_of_range(value);
  return static_cast<std::int32_t>(value);
}

bool JsonNode::boolean() const {
  if (!value_->is_boolean()) fail(fmt::format("must be true or false, found {}", value_->type_name()));
  return value_->get<bool>();
}

const std::string& JsonNode::text() const {
  if (!value_->is_string()) fail(fmt::format("must be a string, found {}", value_->type_name()));
  return value_->get_ref<const std::string&>();
}

std::size_t JsonNode::one_of(std::span<const std::string_view> names) const {
  const auto found = std::find(names.begin(), names.end(), text());
  if (found == names.end()) fail(fmt::format("is \"{}\", it must be one of {}", shown(text()), fmt::join(names, ", ")));
  return static_cast<std::size_t>(found - names.begin());
}

std::string JsonNode::path() const {
  if (parent_ == nullptr) return "$";
  return parent_->path() + (key_.empty() ? fmt::format("[{}]", index_) : fmt::format(".{}", key_));
}

void JsonNode::fail(std::string_view why) const { throw InputError(fmt::format("program JSON: {} {}", path(), why)); }

}  // namespace plumb
