// SPDX-License-Identifier: Apache-2.0
//
// yaml_fields.hpp (private): typed values out of a map of settings; every refusal names source, line and key.
//
// Each key is asked for by name; finish() refuses what nobody asked for, with the nearest key that somebody did.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yaml_tree.hpp"

namespace plumb {

// `least` and `most` are the limits of what is legal; outside `low`..`high` it is possible and unlikely: a warning.
struct LegalRange {
  double least = 0;
  double most = std::numeric_limits<double>::max();
  double low = 0;
  double high = std::numeric_limits<double>::max();
  std::string_view hint{};  // of the warning: what may have been meant
};

class YamlFields {
 public:
  // `where` is the path of the map, "gpu". Throws InputError unless `map` is one.
  YamlFields(const YamlNode& map, std::string_view source, std::string where, std::vector<std::string>& warnings);

  // Null where the key is absent.
  const YamlNode* find(std::string_view key);
  const YamlNode& require(std::string_view key);

  std::string text(std::string_view key);
  double number(std::string_view key, const LegalRange& range);
  double number_or(std::string_view key, const LegalRange& range, double absent);
  std::optional<std::int64_t> whole(std::string_view key, std::int64_t least, std::int64_t most);
  bool flag_or(std::string_view key, bool absent);

  void finish() const;
  [[noreturn]] void refuse(int line, std::string_view why) const;

 private:
  double checked(const YamlNode& node, std::string_view key, const LegalRange& range);
  std::string path(std::string_view key) const;

  const YamlNode& map_;
  std::string_view source_;
  std::string where_;
  std::vector<std::string>& warnings_;
  std::vector<std::string_view> known_;
};

}  // namespace plumb
