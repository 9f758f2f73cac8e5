// SPDX-License-Identifier: Apache-2.0
//
// encode_node.hpp (private): a place in a JSON document that knows its path, so that every refusal can name it.
//
// The path is put together only when something is wrong; a good document of millions of nodes pays for none. A node
// refers to its parent, which must outlive it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace plumb {

class JsonNode {
 public:
  using Json = nlohmann::ordered_json;

  explicit JsonNode(const Json& root) : value_(&root) {}

  // Throws unless this is an object with exactly these keys.
  void require_keys(std::initializer_list<std::string_view> keys) const;
  // REQUIRES: the key exists (require_keys).
  JsonNode operator[](std::string_view key) const;
  bool has(std::string_view key) const;

  // An array's length; throws if this is not one, or if `length` is given and differs.
  std::size_t size() const;
  void require_size(std::size_t length) const;
  // REQUIRES: index < size().
  JsonNode operator[](std::size_t index) const;

  // Each throws if the type or the range is wrong.
  std::int32_t integer(std::int64_t lowest, std::int64_t highest) const;
  bool boolean() const;
  const std::string& text() const;
  // Index of the text in `names`.
  std::size_t one_of(std::span<const std::string_view> names) const;

  // One line: the path and why.
  [[noreturn]] void fail(std::string_view why) const;
  std::string path() const;

 private:
  JsonNode(const Json& value, const JsonNode* parent, std::string_view key, std::size_t index)
      : value_(&value), parent_(parent), key_(key), index_(index) {}

  const Json* value_;
  const JsonNode* parent_ = nullptr;
  std::string_view key_;
  std::size_t index_ = 0;
};

}  // namespace plumb
