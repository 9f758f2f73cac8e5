// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/residual_traffic.hpp"

#include <algorithm>

namespace plumb {
namespace {

std::int64_t most_resident(const Routing& routing, const Layout& layout) {
  std::vector<std::int64_t> on_rank(static_cast<std::size_t>(layout.pp()));
  for (const Holding& holding : routing.holdings)
    ++on_rank[holding.rank.index()];
  for (const Transfer& transfer : routing.transfers) {
    if (transfer.partial) ++on_rank[transfer.to.index()];
  }
  return *std::max_element(on_rank.begin(), on_rank.end());
}

}  // namespace

std::vector<Policy> policies_of(Residual residual) {
  if (residual == Residual::standard) return {Policy::standard};
  return {Policy::naive, Policy::relay, Policy::cached, Policy::direct};
}

std::int64_t backward_units(const Routing& routing) {
  std::int64_t sum = 0;
  for (const Holding& holding : routing.holdings)
    sum += static_cast<std::int64_t>(holding.children.size());
  for (const Transfer& transfer : routing.transfers)
    sum += transfer.partial ? 1 : 0;
  return sum;
}

ResidualTraffic residual_traffic(const Layout& layout, const DepthMap& depth, Policy policy) {
  const Routing routing = make_routing(layout, depth, policy);
  const PolicyVolume counted = count_volume(routing, layout);
  return {.policy = policy,
          .forward_units = counted.units,
          .backward_units = backward_units(routing),
          .expected_units = expected_units(layout, depth, policy),
          .peak_hop_units = counted.peak_hop_units,
          .resident_units = most_resident(routing, layout)};
}

}  // namespace plumb
