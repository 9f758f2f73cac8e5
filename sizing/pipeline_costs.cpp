// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/pipeline_costs.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

Link link_of(const Tier& tier, const PointToPoint& p2p, const Degrees& degrees, const UnitBytes& bytes) {
  // The devices of a stage send at the same time.
  const int sharing = std::min(tier.shared_by_gpus, degrees.gpus());
  const double rate = tier.GBps_per_dir * tier.efficiency * degrees.tp / sharing / (tier.full_duplex ? 1 : 2);
  return link_from_rate(from_us(tier.latency_us + p2p.launch_us, "the latency of a tier"), rate, bytes);
}

}  // namespace

LinkTable pipeline_links(const Cluster& cluster, int num_ranks, const Degrees& degrees, const UnitBytes& bytes) {
  const std::int64_t step = degrees.gpus();
  require_room(cluster, num_ranks * step);
  LinkTable table{.num_ranks = num_ranks, .links = {}, .of_pair = {}};
  for (const Tier& tier : cluster.tiers)
    table.links.push_back(link_of(tier, cluster.p2p, degrees, bytes));
  for (int from = 0; from < num_ranks; ++from) {
    for (int to = 0; to < num_ranks; ++to) {
      const Tier& tier = tier_between(cluster, from * step, to * step);
      table.of_pair.push_back(static_cast<std::uint8_t>(&tier - cluster.tiers.data()));
    }
  }
  return table;
}

void apply_stragglers(std::vector<ActionTimes>& times, const Cluster& cluster, const Layout& layout) {
  for (const Straggler& straggler : cluster.stragglers) {
    if (straggler.rank >= layout.pp()) {
      throw InputError(fmt::format("cluster {}: straggler rank {} is no rank of the pipeline, which has 0 to {}",
                                   cluster.name, straggler.rank, layout.pp() - 1));
    }
    const auto scaled = [&](SimTime time) {
      return from_us(to_us(time) * straggler.compute_scale, "a straggler's time");
    };
    for (std::size_t chunk = 0; chunk < times.size(); ++chunk) {
      if (layout.rank_of(ChunkId(static_cast<int>(chunk))) != RankId(straggler.rank)) continue;
      ActionTimes& t = times[chunk];
      t = {scaled(t.forward), scaled(t.backward), scaled(t.backward_input), scaled(t.backward_weight)};
    }
  }
}

CostModel pipeline_costs(const ModelShape& shape, std::span<const int> cuts, const Layout& layout, const Batch& batch,
                         const Cluster& cluster, const UnitBytes& bytes, const Efficiencies& efficiencies) {
  std::vector<ActionTimes> times = chunk_times(shape, cuts, batch, cluster, efficiencies);
  apply_stragglers(times, cluster, layout);
  return CostModel(std::move(times), pipeline_links(cluster, layout.pp(), batch.degrees, bytes), bytes);
}

}  // namespace plumb
