// SPDX-License-Identifier: Apache-2.0
//
// cluster_file.hpp: clusters as YAML or JSON, read strictly and written out resolved.
//
// The format is docs/clusters.md. Every key has its unit in its name; unknown keys, keys that stand twice, missing
// ones, units inside values, anchors and aliases are refused with the line. A figure that is possible and unlikely
// (bytes where GB were meant) is a warning, for the caller to show.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plumb/sizing/cluster.hpp"

namespace plumb {

struct ReadCluster {
  Cluster cluster;
  std::vector<std::string> warnings;  // one line each, with file and line
};

// A preset by name, else the path of a file. Throws InputError.
ReadCluster load_cluster(std::string_view name_or_path);

// `source` names the text in errors. JSON is read as the YAML it is.
ReadCluster parse_cluster(std::string_view text, std::string_view source);

// All fields, defaults included; both are read back to an equal cluster.
std::string to_yaml(const Cluster& cluster);
std::string to_json(const Cluster& cluster);

}  // namespace plumb
