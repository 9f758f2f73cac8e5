// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/what_if.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "network_hops.hpp"
#include "plumb/simulator/longest_path.hpp"
#include "plumb/simulator/network.hpp"

namespace plumb {
namespace {

// A cost model and a network taken apart, so that parts of them can change.
struct Costs {
  std::vector<ActionTimes> times;  // [chunk]
  LinkTable links;                 // one for each pair
  UnitBytes bytes;
  std::optional<NetworkModel> network;

  CostModel model() const {
    // The table names at most 256 different ones.
    LinkTable table{.num_ranks = links.num_ranks, .links = {}, .of_pair = {}};
    for (const Link& link : links.links) {
      const auto known = std::find_if(table.links.begin(), table.links.end(), [&](const Link& other) {
        return other.latency == link.latency && other.value_unit == link.value_unit &&
               other.gradient_unit == link.gradient_unit;
      });
      table.of_pair.push_back(static_cast<std::uint8_t>(known - table.links.begin()));
      if (known == table.links.end()) table.links.push_back(link);
    }
    return CostModel(times, std::move(table), bytes);
  }
};

class Trials {
 public:
  Trials(const Program& program, const CostModel& costs, const Timeline& timeline, const WhatIfRequest& request)
      : program_(program), request_(request), step_(timeline.step) {
    const Layout& layout = program.layout;
    for (int c = 0; c < layout.num_chunks(); ++c) {
      const ChunkId chunk(c);
      base_.times.push_back({costs.time_of(Op::forward, chunk), costs.time_of(Op::backward, chunk),
                             costs.time_of(Op::backward_input, chunk), costs.time_of(Op::backward_weight, chunk)});
    }
    base_.links.num_ranks = layout.pp();
    for (int from = 0; from < layout.pp(); ++from) {
      for (int to = 0; to < layout.pp(); ++to)
        base_.links.links.push_back(costs.link(RankId(from), RankId(to)));
    }
    base_.bytes = costs.bytes();
    if (request.network == nullptr) return;
    base_.network = *request.network;
    if (what_is_shared(program, base_.bytes, *request.network).empty())
      path_.emplace(program, base_.bytes, *request.network);
  }

  bool more() const { return static_cast<int>(results_.size()) < request_.most; }

  void trial(std::string what, const std::function<void(Costs&)>& change) {
    if (!more()) return;
    Costs changed = base_;
    change(changed);
    const CostModel costs = changed.model();
    const SimTime step = path_             ? path_->step(costs, *changed.network)
                         : changed.network ? simulate_network(program_, costs, *changed.network).step
                                           : simulate(program_, costs, request_.simulation).step;
    results_.push_back({std::move(what), step, step_ - step});
  }

  SimTime less(SimTime time) const {
    return SimTime(std::llround(static_cast<double>(time.count()) * (1 - request_.less)));
  }
  // A unit time of 0 would mean that messages occupy nothing.
  SimTime less_unit(SimTime time) const { return std::max(less(time), std::min(time, SimTime(1))); }
  double more_rate(double rate) const {
    return std::isinf(rate) ? rate : std::min(rate / (1 - request_.less), max_bytes_per_s);
  }

  std::vector<WhatIf> results() {
    std::stable_sort(results_.begin(), results_.end(),
                     [](const WhatIf& a, const WhatIf& b) { return a.saves > b.saves; });
    return std::move(results_);
  }

 private:
  const Program& program_;
  const WhatIfRequest& request_;
  const SimTime step_;
  Costs base_;
  std::optional<LongestPath> path_;
  std::vector<WhatIf> results_;
};

void try_everything(const Program& program, Trials& trials) {
  const auto each_time = [&](auto&& change) {
    return [&, change](Costs& costs) {
      for (ActionTimes& times : costs.times)
        change(times);
    };
  };
  trials.trial("all computations", each_time([&](ActionTimes& t) {
                 t = {trials.less(t.forward), trials.less(t.backward), trials.less(t.backward_input),
                      trials.less(t.backward_weight)};
               }));
  bool splits = false;
  for (const RankProgram& rank : program.ranks)
    splits = splits || std::any_of(rank.compute.begin(), rank.compute.end(),
                                   [](const ComputeStep& step) { return step.compute.op == Op::backward_weight; });
  if (splits) {
    trials.trial("all W", each_time([&](ActionTimes& t) { t.backward_weight = trials.less(t.backward_weight); }));
  }
  trials.trial("the last chunk, with the head", [&](Costs& costs) {
    ActionTimes& t = costs.times.back();
    t = {trials.less(t.forward), trials.less(t.backward), trials.less(t.backward_input),
         trials.less(t.backward_weight)};
  });
  if (program.messages.empty()) return;
  trials.trial("all rates of messages", [&](Costs& costs) {
    for (Link& link : costs.links.links) {
      link.value_unit = trials.less_unit(link.value_unit);
      link.gradient_unit = trials.less_unit(link.gradient_unit);
    }
    if (!costs.network) return;
    for (NetworkResource& resource : costs.network->resources)
      resource.bytes_per_s = trials.more_rate(resource.bytes_per_s);
  });
  trials.trial("all latencies of messages", [&](Costs& costs) {
    for (Link& link : costs.links.links)
      link.latency = trials.less(link.latency);
    if (!costs.network) return;
    costs.network->protocol.launch = trials.less(costs.network->protocol.launch);
    for (NetworkTier& tier : costs.network->tiers)
      tier.latency = trials.less(tier.latency);
  });
}

void try_rank(const Program& program, RankId rank, Trials& trials) {
  trials.trial(fmt::format("rank {} computes", rank.value), [&](Costs& costs) {
    for (std::size_t c = 0; c < costs.times.size(); ++c) {
      if (program.layout.rank_of(ChunkId(c)) != rank) continue;
      ActionTimes& t = costs.times[c];
      t = {trials.less(t.forward), trials.less(t.backward), trials.less(t.backward_input),
           trials.less(t.backward_weight)};
    }
  });
}

// Both rate and latency of a pair's link.
void try_pair(RankId from, RankId to, Trials& trials) {
  trials.trial(fmt::format("messages from rank {} to rank {}", from.value, to.value), [&](Costs& costs) {
    Link& link = costs.links.links[from.index() * static_cast<std::size_t>(costs.links.num_ranks) + to.index()];
    link = {trials.less(link.latency), trials.less_unit(link.value_unit), trials.less_unit(link.gradient_unit)};
  });
}

}  // namespace

std::vector<WhatIf> what_if(const Program& program, const CostModel& costs, const Timeline& timeline,
                            const std::vector<PathPiece>& path, const WhatIfRequest& request) {
  Trials trials(program, costs, timeline, request);
  try_everything(program, trials);
  std::set<std::int32_t> ranks;
  std::set<std::int32_t> resources;
  for (const PathShare& share : path_shares(path)) {
    if (!trials.more()) break;
    if (share.kind == PathKind::wait) continue;
    if (share.kind != PathKind::wire && share.kind != PathKind::queue) {
      if (ranks.insert(share.rank.value).second) try_rank(program, share.rank, trials);
    } else if (request.network == nullptr) {
      const std::int32_t pair = share.rank.value * program.layout.pp() + share.to.value;
      if (resources.insert(pair).second) try_pair(share.rank, share.to, trials);
    } else {
      for (const ResourceId resource : resources_between(*request.network, share.rank, share.to)) {
        if (!resources.insert(resource.value).second) continue;
        trials.trial("the rate of " + request.network->resources[resource.index()].name, [&](Costs& changed) {
          double& rate = changed.network->resources[resource.index()].bytes_per_s;
          rate = trials.more_rate(rate);
        });
      }
    }
  }
  return trials.results();
}

}  // namespace plumb
