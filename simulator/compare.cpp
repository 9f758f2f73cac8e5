// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/compare.hpp"

#include "plumb/schedule/error.hpp"
#include "plumb/simulator/network.hpp"

namespace plumb {
namespace {

DepthMap without_blocks(const DepthMap& depth) {
  return DepthMap(depth.sublayers(), depth.block_sublayers(), {depth.cuts().begin(), depth.cuts().end()},
                  Residual::standard);
}

}  // namespace

Duplex planned_duplex(const SimOptions& options, const NetworkModel* network) {
  if (network == nullptr) return options.duplex;
  const bool one_at_a_time = network->streams == CommStreams::single || network->streams == CommStreams::batched;
  return one_at_a_time ? Duplex::half : Duplex::full;
}

std::vector<PolicyRow> compare_policies(const Schedule& schedule, const DepthMap& depth, const CostModel& costs,
                                        const SimOptions& options, int post_ahead, const NetworkModel* network,
                                        const DeviceBytes* device) {
  if (depth.residual() == Residual::standard) {
    throw InputError("a standard residual has no blocks to route: compare policies with attnres-block or attnres-full");
  }
  LowerOptions lowering{.post_ahead = post_ahead, .costs = plan_costs(costs)};
  lowering.costs.duplex = planned_duplex(options, network);
  std::vector<PolicyRow> rows;
  for (const Policy policy : {Policy::standard, Policy::naive, Policy::relay, Policy::direct, Policy::cached}) {
    const DepthMap map = policy == Policy::standard ? without_blocks(depth) : depth;
    const Program program = lower(schedule, map, policy, lowering);
    const Timeline timeline =
        network != nullptr ? simulate_network(program, costs, *network) : simulate(program, costs, options);
    rows.push_back({policy, 0, make_report(program, costs, timeline, network), {}});
    if (device != nullptr) {
      for (const ClassPeak& peak : class_peaks(program, timeline, *device)) {
        if (peak.bytes() > rows.back().device_peak.bytes()) rows.back().device_peak = peak;
      }
    }
    const double standard = static_cast<double>(rows.front().report.step.count());
    if (standard > 0)
      rows.back().overhead_over_standard = static_cast<double>(rows.back().report.step.count()) / standard - 1;
  }
  return rows;
}

}  // namespace plumb
