// SPDX-License-Identifier: Apache-2.0
//
// yaml_tree.hpp (private): a YAML or JSON text as a tree that knows the line of everything in it.
//
// Only what a file of settings needs: maps, lists, scalars. Anchors, aliases, tags and more than one document are
// refused, so the tree is finite and as large as the text; so are keys that stand twice, which the parser would let
// pass.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plumb {

struct YamlNode {
  enum class Kind : std::uint8_t { null, scalar, list, map };
  Kind kind = Kind::null;
  int line = 0;  // from 1
  std::string scalar{};
  std::vector<YamlNode> items{};                           // of a list
  std::vector<std::pair<std::string, YamlNode>> fields{};  // of a map, in the order of the text
};

// Throws InputError, "source: line 3: ...".
YamlNode parse_yaml(std::string_view text, std::string_view source);

}  // namespace plumb
