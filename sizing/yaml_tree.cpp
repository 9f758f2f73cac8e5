// SPDX-License-Identifier: Apache-2.0
// The only file that includes yaml-cpp.
#include "yaml_tree.hpp"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

constexpr std::size_t max_depth = 32;

class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string_view source) : source_(source) {}

  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(mark, "", anchor, {.kind = YamlNode::Kind::null});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    refuse(mark, "an alias (*) is not taken here: write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    // The parser gives quoted scalars the tag "!".
    add(mark, tag == "!" ? "" : tag, anchor, {.kind = YamlNode::Kind::scalar, .scalar = value});
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, {.kind = YamlNode::Kind::list});
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, {.kind = YamlNode::Kind::map});
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    YamlNode node;
    std::string key;
    bool has_key = false;
  };

  [[noreturn]] void refuse(const YAML::Mark& mark, std::string_view why) const {
    throw InputError(fmt::format("{}: line {}: {}", source_, mark.line + 1, why));
  }

  void check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) const {
    if (anchor != 0) refuse(mark, "an anchor (&) is not taken here: write the value out");
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, fmt::format("the tag {} is not taken here", tag));
  }

  void add(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode node) {
    check(mark, tag, anchor);
    node.line = mark.line + 1;
    place(mark, std::move(node));
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode node) {
    check(mark, tag, anchor);
    if (open_.size() == max_depth) refuse(mark, fmt::format("nested deeper than {} levels", max_depth));
    if (!open_.empty() && open_.back().node.kind == YamlNode::Kind::map && !open_.back().has_key) {
      refuse(mark, "a key must be a word");
    }
    node.line = mark.line + 1;
    open_.push_back({.node = std::move(node), .key = {}});
  }

  void close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    place({}, std::move(node));
  }

  void place(const YAML::Mark& mark, YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::list) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.has_key) {
      if (node.kind != YamlNode::Kind::scalar) refuse(mark, "a key must be a word");
      const auto same = std::find_if(parent.node.fields.begin(), parent.node.fields.end(),
                                     [&](const auto& field) { return field.first == node.scalar; });
      if (same != parent.node.fields.end()) {
        refuse(mark, fmt::format("the key '{}' stands twice, first in line {}", node.scalar, same->second.line));
      }
      parent.key = std::move(node.scalar);
      parent.has_key = true;
    } else {
      parent.node.fields.emplace_back(std::move(parent.key), std::move(node));
      parent.key.clear();
      parent.has_key = false;
    }
  }

  std::string_view source_;
  YamlNode root_;
  std::vector<Open> open_;
};

}  // namespace

YamlNode parse_yaml(std::string_view text, std::string_view source) {
  std::string plain(text);
  // JSON may be indented with tabs, which YAML forbids; within its strings they cannot stand.
  const std::size_t first = plain.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && plain[first] == '{') std::replace(plain.begin(), plain.end(), '\t', ' ');
  std::istringstream in(plain);
  TreeBuilder builder(source);
  try {
    YAML::Parser parser(in);
    if (!parser.HandleNextDocument(builder)) throw InputError(fmt::format("{}: the file is empty", source));
    YamlNode root = builder.take();
    if (parser.HandleNextDocument(builder)) {
      throw InputError(fmt::format("{}: a second document (---) begins, one is needed", source));
    }
    return root;
  } catch (const YAML::Exception& error) {
    throw InputError(fmt::format("{}: line {}: neither YAML nor JSON: {}", source, error.mark.line + 1, error.msg));
  }
}

}  // namespace plumb
