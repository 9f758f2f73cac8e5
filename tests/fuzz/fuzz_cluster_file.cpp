// SPDX-License-Identifier: Apache-2.0
// Cluster files, YAML or JSON. What is read comes back the same from what is written of it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "expect.hpp"
#include "plumb/sizing/cluster_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plumb;
  fuzz::try_to([text = std::string(data, data + size)] {
    const Cluster cluster = parse_cluster(text, "fuzz").cluster;
    fuzz::expect(!cluster.tiers.empty());
    fuzz::expect(parse_cluster(to_yaml(cluster), "written").cluster == cluster);
    fuzz::expect(parse_cluster(to_json(cluster), "written").cluster == cluster);
  });
  return 0;
}
