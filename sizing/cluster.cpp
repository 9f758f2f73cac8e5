// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/cluster.hpp"

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb {

const Tier& tier_between(const Cluster& cluster, std::int64_t gpu, std::int64_t other) {
  for (const Tier& tier : cluster.tiers) {
    if (tier.span_gpus == 0 || gpu / tier.span_gpus == other / tier.span_gpus) return tier;
  }
  throw InputError(
      fmt::format("cluster {}: devices {} and {} share no tier: the outermost, {}, spans {} devices; take fewer or "
                  "leave its span_gpus out",
                  cluster.name, gpu, other, cluster.tiers.empty() ? "none" : cluster.tiers.back().name,
                  cluster.tiers.empty() ? 0 : cluster.tiers.back().span_gpus));
}

void require_room(const Cluster& cluster, std::int64_t gpus) {
  if (gpus > 1) tier_between(cluster, 0, gpus - 1);
}

}  // namespace plumb
