// SPDX-License-Identifier: Apache-2.0
#include "fair_share.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plumb {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::int64_t fraction = std::int64_t{1} << 20;
constexpr std::uint64_t longest = std::uint64_t{1} << 62;

Wide work(std::int64_t bytes) {
  return Wide(static_cast<std::uint64_t>(bytes)) * std::uint64_t(SimTime::period::den) * fraction;
}

SimTime time_for(Wide left, FlowRate rate) {
  const auto divisor = static_cast<std::uint64_t>(rate);
  const Wide time = (left + divisor / 2) / divisor;
  return SimTime(static_cast<std::int64_t>(time > longest ? longest : static_cast<std::uint64_t>(time)));
}

}  // namespace

FlowRate flow_rate(double bytes_per_s) {
  if (std::isinf(bytes_per_s)) return std::numeric_limits<FlowRate>::max();
  return static_cast<FlowRate>(bytes_per_s * static_cast<double>(fraction));
}

SimTime flow_time(std::int64_t bytes, FlowRate rate) {
  if (rate == std::numeric_limits<FlowRate>::max()) return SimTime(0);
  return time_for(work(bytes), rate);
}

FairShare::FairShare(std::span<const NetworkResource> resources) : resources_(resources.size()) {
  for (std::size_t i = 0; i < resources.size(); ++i) {
    resources_[i].capacity = flow_rate(resources[i].bytes_per_s);
  }
}

FairShare::Flow FairShare::start(std::span<const ResourceId> path, std::int64_t bytes, SimTime now) {
  if (unused_.empty()) {
    unused_.push_back(static_cast<std::int32_t>(flows_.size()));
    flows_.emplace_back();
  }
  const std::int32_t id = unused_.back();
  unused_.pop_back();
  FlowState& flow = flows_[static_cast<std::size_t>(id)];
  flow.left = work(bytes);
  flow.since = now;
  flow.finish = SimTime::max();
  flow.rate = 0;
  flow.length = static_cast<std::uint8_t>(path.size());
  for (std::uint32_t hop = 0; hop < flow.length; ++hop) {
    const std::int32_t resource = path[hop].value;
    std::vector<Member>& members = resources_[path[hop].index()].members;
    flow.path[hop] = resource;
    flow.place[hop] = static_cast<std::uint32_t>(members.size());
    members.push_back({id, hop});
    touch(resource);
  }
  return Flow(id);
}

void FairShare::end(Flow ended) {
  const FlowState& flow = flows_[ended.index()];
  for (std::uint32_t hop = 0; hop < flow.length; ++hop) {
    std::vector<Member>& members = resources_[static_cast<std::size_t>(flow.path[hop])].members;
    const Member last = members.back();
    members[flow.place[hop]] = last;
    flows_[static_cast<std::size_t>(last.flow)].place[last.hop] = flow.place[hop];
    members.pop_back();
    touch(flow.path[hop]);
  }
  unused_.push_back(ended.value);
}

void FairShare::touch(std::int32_t resource) {
  bool& dirty = resources_[static_cast<std::size_t>(resource)].dirty;
  if (!dirty) dirty_.push_back(resource);
  dirty = true;
}

void FairShare::share(SimTime now, std::vector<Change>& changes) {
  if (dirty_.empty()) return;
  now_ = now;
  changes_ = &changes;
  ++round_;
  for (const std::int32_t resource : dirty_) {
    ResourceState& state = resources_[static_cast<std::size_t>(resource)];
    state.dirty = false;
    if (state.seen == round_ || state.members.empty()) continue;
    collect(resource);
    fill();
  }
  dirty_.clear();
}

// All resources that flows connect with this one.
void FairShare::collect(std::int32_t resource) {
  component_.clear();
  num_unsettled_ = 0;
  const auto add = [&](std::int32_t found) {
    ResourceState& state = resources_[static_cast<std::size_t>(found)];
    if (state.seen == round_) return;
    state.seen = round_;
    state.left = state.capacity;
    state.unsettled = static_cast<std::uint32_t>(state.members.size());
    state.share = state.capacity / state.unsettled;
    component_.push_back(found);
  };
  add(resource);
  for (std::size_t next = 0; next < component_.size(); ++next) {
    for (const Member& member : resources_[static_cast<std::size_t>(component_[next])].members) {
      FlowState& flow = flows_[static_cast<std::size_t>(member.flow)];
      if (flow.seen == round_) continue;
      flow.seen = round_;
      ++num_unsettled_;
      for (std::uint32_t hop = 0; hop < flow.length; ++hop) {
        add(flow.path[hop]);
      }
    }
  }
}

// Each turn settles all flows of every resource whose share is the least of all.
void FairShare::fill() {
  while (num_unsettled_ > 0) {
    FlowRate least = std::numeric_limits<FlowRate>::max();
    std::size_t kept = 0;
    for (const std::int32_t resource : component_) {
      const ResourceState& state = resources_[static_cast<std::size_t>(resource)];
      if (state.unsettled == 0) continue;
      component_[kept++] = resource;
      least = std::min(least, state.share);
    }
    component_.resize(kept);
    for (const std::int32_t resource : component_) {
      const ResourceState& state = resources_[static_cast<std::size_t>(resource)];
      if (state.unsettled > 0 && state.share == least) settle(resource, least);
    }
  }
}

void FairShare::settle(std::int32_t resource, FlowRate share) {
  for (const Member& member : resources_[static_cast<std::size_t>(resource)].members) {
    FlowState& flow = flows_[static_cast<std::size_t>(member.flow)];
    if (flow.settled == round_) continue;
    flow.settled = round_;
    --num_unsettled_;
    for (std::uint32_t hop = 0; hop < flow.length; ++hop) {
      ResourceState& passed = resources_[static_cast<std::size_t>(flow.path[hop])];
      passed.left -= share;
      if (--passed.unsettled > 0) passed.share = passed.left / passed.unsettled;
    }
    set_rate(member.flow, share);
  }
}

void FairShare::set_rate(std::int32_t id, FlowRate rate) {
  FlowState& flow = flows_[static_cast<std::size_t>(id)];
  if (rate == flow.rate) return;
  const Wide moved =
      Wide(static_cast<std::uint64_t>(flow.rate)) * static_cast<std::uint64_t>((now_ - flow.since).count());
  flow.left = moved < flow.left ? flow.left - moved : 0;
  flow.since = now_;
  flow.rate = rate;
  flow.finish = now_ + time_for(flow.left, rate);
  changes_->push_back({Flow(id), flow.finish});
}

}  // namespace plumb
