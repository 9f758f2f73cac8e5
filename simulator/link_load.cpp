// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/link_load.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "network_hops.hpp"

namespace plumb {
namespace {

struct Interval {
  SimTime from;
  SimTime to;
};

SimTime length_of_union(std::vector<Interval>& intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.from < b.from; });
  SimTime sum{0};
  SimTime until{0};
  for (const Interval& interval : intervals) {
    const SimTime from = std::max(interval.from, until);
    if (interval.to <= from) continue;
    sum += interval.to - from;
    until = interval.to;
  }
  return sum;
}

class Counter {
 public:
  Counter(const Program& program, const UnitBytes& unit, const Timeline& timeline)
      : program_(program), unit_(unit), timeline_(timeline) {}

  LinkLoads of_ranks() {
    LinkLoads loads;
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      loads.links.push_back({fmt::format("rank {} out", r)});
      loads.links.push_back({fmt::format("rank {} in", r)});
    }
    for (std::size_t m = 0; m < program_.messages.size(); ++m) {
      const MessageTimes& times = timeline_.messages[m];
      const MessageId id(m);
      for (const std::size_t link : {2 * program_.sender(id).index(), 2 * program_.receiver(id).index() + 1}) {
        count(loads.links[link], id);
        loads.links[link].busy += times.sent - times.start;  // one after the other
      }
    }
    drop_unused(loads.links);
    return loads;
  }

  LinkLoads of_network(const NetworkModel& network, const NetworkHops& hops) {
    LinkLoads loads;
    for (const NetworkResource& resource : network.resources)
      loads.links.push_back({.name = resource.name, .bytes_per_s = resource.bytes_per_s});
    for (const NetworkTier& tier : network.tiers)
      loads.tiers.push_back({.name = tier.name});
    std::vector<std::vector<Interval>> moving(network.resources.size());
    const bool has_streams = network.streams != CommStreams::unordered;
    for (std::size_t m = 0; m < program_.messages.size(); ++m) {
      const MessageId id(m);
      const MessageTimes& times = timeline_.messages[m];
      const NetworkHop& hop = hops.of(program_.messages[m]);
      TierLoad& tier = loads.tiers[tier_of(network, hop.from, hop.to)];
      ++tier.num_messages;
      tier.bytes += bytes_of(id);
      const bool rendezvous = has_streams && (bytes_of(id) > network.protocol.eager_limit_bytes);
      const SimTime from = times.start + (rendezvous ? hop.latency : SimTime(0));
      for (const ResourceId resource : hop.resources()) {
        count(loads.links[resource.index()], id);
        moving[resource.index()].push_back({from, times.sent});
      }
    }
    for (std::size_t i = 0; i < moving.size(); ++i)
      loads.links[i].busy = length_of_union(moving[i]);
    drop_unused(loads.links);
    return loads;
  }

 private:
  std::int64_t bytes_of(MessageId message) const {
    const bool forward = program_.messages[message.index()].direction == Direction::forward;
    return timeline_.messages[message.index()].units * (forward ? unit_.value : unit_.gradient_wire);
  }

  void count(LinkLoad& load, MessageId message) const {
    ++load.num_messages;
    load.bytes += bytes_of(message);
  }

  static std::size_t tier_of(const NetworkModel& network, RankId from, RankId to) {
    std::size_t tier = 0;
    while (network.tiers[tier].group[from.index()] != network.tiers[tier].group[to.index()])
      ++tier;
    return tier;
  }

  static void drop_unused(std::vector<LinkLoad>& links) {
    std::erase_if(links, [](const LinkLoad& load) { return load.num_messages == 0; });
  }

  const Program& program_;
  const UnitBytes& unit_;
  const Timeline& timeline_;
};

}  // namespace

double mean_use(const LinkLoad& load, SimTime step) {
  if (load.bytes_per_s <= 0 || step <= SimTime(0)) return 0;
  return static_cast<double>(load.bytes) / load.bytes_per_s / (to_us(step) * 1e-6);
}

LinkLoads link_loads(const Program& program, const CostModel& costs, const Timeline& timeline,
                     const NetworkModel* network) {
  Counter counter(program, costs.bytes(), timeline);
  if (network == nullptr) return counter.of_ranks();
  return counter.of_network(*network, NetworkHops(program, costs, *network));
}

}  // namespace plumb
