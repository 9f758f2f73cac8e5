// SPDX-License-Identifier: Apache-2.0
#include "yaml_fields.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "did_you_mean.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

constexpr std::size_t longest_text = 200;

template <class Number>
bool read_all(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::string shortened(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::null) return "nothing";
  if (node.kind == YamlNode::Kind::list) return "a list";
  if (node.kind == YamlNode::Kind::map) return "a map";
  return fmt::format("'{}'", node.scalar.substr(0, 40));
}

// "hbm_GBps" -> "GBps": what follows the last underscore.
std::string_view unit_of(std::string_view key) { return key.substr(key.rfind('_') + 1); }

}  // namespace

YamlFields::YamlFields(const YamlNode& map, std::string_view source, std::string where,
                       std::vector<std::string>& warnings)
    : map_(map), source_(source), where_(std::move(where)), warnings_(warnings) {
  if (map.kind != YamlNode::Kind::map) {
    refuse(map.line,
           fmt::format("{} is {}, keys with values are needed", where_.empty() ? "the file" : where_, shortened(map)));
  }
}

std::string YamlFields::path(std::string_view key) const {
  return where_.empty() ? std::string(key) : fmt::format("{}.{}", where_, key);
}

void YamlFields::refuse(int line, std::string_view why) const {
  throw InputError(fmt::format("{}: line {}: {}", source_, line, why));
}

const YamlNode* YamlFields::find(std::string_view key) {
  known_.push_back(key);
  for (const auto& [name, node] : map_.fields) {
    if (name == key) return &node;
  }
  return nullptr;
}

const YamlNode& YamlFields::require(std::string_view key) {
  const YamlNode* node = find(key);
  if (node != nullptr) return *node;
  // A key that was meant for this one says more than that this one is missing.
  for (const auto& [name, other] : map_.fields) {
    const std::string_view wanted[] = {key};
    if (name != key && !did_you_mean(name, wanted).empty() &&
        std::find(known_.begin(), known_.end(), name) == known_.end()) {
      refuse(other.line, fmt::format("unknown key '{}', did you mean '{}'? Units stand in the keys", path(name), key));
    }
  }
  refuse(map_.line, fmt::format("{} lacks the key '{}'", where_.empty() ? "the cluster" : where_, key));
}

std::string YamlFields::text(std::string_view key) {
  const YamlNode& node = require(key);
  if (node.kind != YamlNode::Kind::scalar || node.scalar.empty()) {
    refuse(node.line, fmt::format("{} is {}, a text is needed", path(key), shortened(node)));
  }
  const bool plain = std::none_of(node.scalar.begin(), node.scalar.end(),
                                  [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; });
  if (!plain || node.scalar.size() > longest_text) {
    refuse(node.line, fmt::format("{} must be one line of at most {} letters", path(key), longest_text));
  }
  return node.scalar;
}

double YamlFields::checked(const YamlNode& node, std::string_view key, const LegalRange& range) {
  double value = 0;
  if (node.kind != YamlNode::Kind::scalar || !read_all<double>(node.scalar, value) || !std::isfinite(value)) {
    refuse(node.line, fmt::format("{} is {}, a plain number is needed: its unit, {}, stands in the key", path(key),
                                  shortened(node), unit_of(key)));
  }
  if (value < range.least || value > range.most) {
    refuse(node.line, fmt::format("{} is {:g}, legal are {:g} to {:g}", path(key), value, range.least, range.most));
  }
  if (value < range.low || value > range.high) {
    warnings_.push_back(fmt::format("{}: line {}: {} is {:g}, which is unlikely: {:g} to {:g} are usual{}", source_,
                                    node.line, path(key), value, range.low, range.high, range.hint));
  }
  return value;
}

double YamlFields::number(std::string_view key, const LegalRange& range) { return checked(require(key), key, range); }

double YamlFields::number_or(std::string_view key, const LegalRange& range, double absent) {
  const YamlNode* node = find(key);
  return node == nullptr ? absent : checked(*node, key, range);
}

std::optional<std::int64_t> YamlFields::whole(std::string_view key, std::int64_t least, std::int64_t most) {
  const YamlNode* node = find(key);
  if (node == nullptr) return std::nullopt;
  std::int64_t value = 0;
  if (node->kind != YamlNode::Kind::scalar || !read_all(node->scalar, value)) {
    refuse(node->line, fmt::format("{} is {}, a whole number is needed", path(key), shortened(*node)));
  }
  if (value < least || value > most) {
    refuse(node->line, fmt::format("{} is {}, legal are {} to {}", path(key), value, least, most));
  }
  return value;
}

bool YamlFields::flag_or(std::string_view key, bool absent) {
  const YamlNode* node = find(key);
  if (node == nullptr) return absent;
  if (node->kind == YamlNode::Kind::scalar && node->scalar == "true") return true;
  if (node->kind == YamlNode::Kind::scalar && node->scalar == "false") return false;
  refuse(node->line, fmt::format("{} is {}, true or false is needed", path(key), shortened(*node)));
}

void YamlFields::finish() const {
  for (const auto& [name, node] : map_.fields) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    const std::string nearest = did_you_mean(name, known_);
    refuse(node.line,
           fmt::format("unknown key '{}'{}", path(name.substr(0, 60)),
                       nearest.empty() ? fmt::format("; legal here are {}", fmt::join(known_, ", ")) : nearest));
  }
}

}  // namespace plumb
