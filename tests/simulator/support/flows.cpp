// SPDX-License-Identifier: Apache-2.0
#include "flows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace plumb::test {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

// Progressive filling over all flows that are under way.
std::vector<double> rates_of(const FlowSet& set, const std::vector<bool>& moves) {
  std::vector<double> left;
  for (const NetworkResource& resource : set.resources)
    left.push_back(resource.bytes_per_s);
  std::vector<double> rates(set.flows.size(), -1);
  while (true) {
    std::vector<int> users(set.resources.size(), 0);
    for (std::size_t f = 0; f < set.flows.size(); ++f) {
      if (!moves[f] || rates[f] >= 0) continue;
      for (const ResourceId resource : set.flows[f].path)
        ++users[resource.index()];
    }
    std::size_t narrowest = set.resources.size();
    double least = never;
    for (std::size_t r = 0; r < set.resources.size(); ++r) {
      if (users[r] > 0 && left[r] / users[r] < least) {
        least = left[r] / users[r];
        narrowest = r;
      }
    }
    if (narrowest == set.resources.size()) return rates;
    for (std::size_t f = 0; f < set.flows.size(); ++f) {
      const std::vector<ResourceId>& path = set.flows[f].path;
      if (!moves[f] || rates[f] >= 0 || std::find(path.begin(), path.end(), ResourceId(narrowest)) == path.end())
        continue;
      rates[f] = least;
      for (const ResourceId resource : path)
        left[resource.index()] -= least;
    }
  }
}

}  // namespace

FlowSet random_flows(Dice& dice, int max_flows) {
  FlowSet set;
  const int num_resources = dice.roll(1, 8);
  for (int r = 0; r < num_resources; ++r) {
    set.resources.push_back({"resource " + std::to_string(r), 1e6 * dice.roll(1, 50)});
  }
  const int num_flows = dice.roll(1, max_flows);
  int start = 0;
  for (int f = 0; f < num_flows; ++f) {
    FlowCase flow;
    const int length = dice.roll(1, std::min(num_resources, 4));
    while (static_cast<int>(flow.path.size()) < length) {
      const ResourceId resource(dice.roll(0, num_resources - 1));
      if (std::find(flow.path.begin(), flow.path.end(), resource) == flow.path.end()) flow.path.push_back(resource);
    }
    flow.bytes = dice.roll(1, 1000) * std::int64_t{1000};
    if (dice.roll(0, 2) > 0) start += dice.roll(0, 20'000);
    flow.start = SimTime(std::int64_t{1'000'000} * start);
    set.flows.push_back(flow);
  }
  return set;
}

std::vector<SimTime> run_fair_share(const FlowSet& set) {
  FairShare fair(set.resources);
  std::vector<SimTime> ends(set.flows.size());
  std::vector<std::size_t> flow_in(set.flows.size());  // [FairShare::Flow]
  std::vector<FairShare::Flow> running;
  std::vector<FairShare::Change> changes;
  std::size_t next = 0;  // flows are in order of their starts
  while (next < set.flows.size() || !running.empty()) {
    SimTime now = next < set.flows.size() ? set.flows[next].start : SimTime::max();
    for (const FairShare::Flow flow : running)
      now = std::min(now, fair.finish(flow));
    std::erase_if(running, [&](FairShare::Flow flow) {
      if (fair.finish(flow) > now) return false;
      fair.end(flow);
      ends[flow_in[flow.index()]] = now;
      return true;
    });
    for (; next < set.flows.size() && set.flows[next].start == now; ++next) {
      running.push_back(fair.start(set.flows[next].path, set.flows[next].bytes, now));
      flow_in[running.back().index()] = next;
    }
    fair.share(now, changes);
  }
  return ends;
}

std::vector<double> run_plainly(const FlowSet& set) {
  constexpr double second = 1e-12;
  const std::size_t count = set.flows.size();
  std::vector<double> left;
  for (const FlowCase& flow : set.flows)
    left.push_back(static_cast<double>(flow.bytes));
  std::vector<double> ends(count, never);
  std::vector<bool> moves(count, false);
  double now = 0;
  while (true) {
    const std::vector<double> rates = rates_of(set, moves);
    double next = never;
    for (std::size_t f = 0; f < count; ++f) {
      if (moves[f]) next = std::min(next, now + left[f] / rates[f]);
      const double start = static_cast<double>(set.flows[f].start.count()) * second;
      if (!moves[f] && ends[f] == never) next = std::min(next, std::max(start, now));
    }
    if (next == never) return ends;
    for (std::size_t f = 0; f < count; ++f) {
      if (!moves[f]) {
        const double start = static_cast<double>(set.flows[f].start.count()) * second;
        if (ends[f] == never && start <= next) moves[f] = true;
        continue;
      }
      left[f] -= rates[f] * (next - now);
      if (left[f] > 1e-6) continue;
      moves[f] = false;
      ends[f] = next;
    }
    now = next;
  }
}

}  // namespace plumb::test
