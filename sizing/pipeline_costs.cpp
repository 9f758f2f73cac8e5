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

// The innermost tier that holds both ranks, which the slowest pair of counterparts talks through.
std::size_t tier_of_ranks(const Cluster& cluster, int from, int to, const Degrees& degrees) {
  std::size_t tier = 0;
  while (tier + 1 < cluster.tiers.size() &&
         span_of_rank(cluster.tiers[tier], from, degrees) != span_of_rank(cluster.tiers[tier], to, degrees))
    ++tier;
  return tier;
}

}  // namespace

std::int32_t span_of_rank(const Tier& tier, int rank, const Degrees& degrees) {
  if (tier.span_gpus == 0) return 0;
  const std::int64_t first = static_cast<std::int64_t>(rank) * degrees.gpus() / tier.span_gpus;
  const std::int64_t last = (static_cast<std::int64_t>(rank + 1) * degrees.gpus() - 1) / tier.span_gpus;
  return first == last ? static_cast<std::int32_t>(first) : -1 - rank;
}

LinkTable pipeline_links(const Cluster& cluster, int num_ranks, const Degrees& degrees, const UnitBytes& bytes) {
  require_room(cluster, static_cast<std::int64_t>(num_ranks) * degrees.gpus());
  LinkTable table{.num_ranks = num_ranks, .links = {}, .of_pair = {}};
  for (const Tier& tier : cluster.tiers)
    table.links.push_back(link_of(tier, cluster.p2p, degrees, bytes));
  for (int from = 0; from < num_ranks; ++from) {
    for (int to = 0; to < num_ranks; ++to) {
      table.of_pair.push_back(static_cast<std::uint8_t>(tier_of_ranks(cluster, from, to, degrees)));
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
