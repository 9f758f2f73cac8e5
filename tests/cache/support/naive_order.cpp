// SPDX-License-Identifier: Apache-2.0
#include "naive_order.hpp"

#include <map>
#include <tuple>
#include <utility>

namespace plumb::test {
namespace {

std::map<std::pair<bool, std::int32_t>, std::size_t> positions(const RankProgram& rank) {
  std::map<std::pair<bool, std::int32_t>, std::size_t> result;
  for (std::size_t i = 0; i < rank.order.size(); ++i) {
    result[{rank.order[i].comm, rank.order[i].index}] = i;
  }
  return result;
}

bool writes(const Compute& compute, Role role) {
  switch (role) {
    case Role::closed:
    case Role::partial_out:
      return compute.op == Op::forward;
    case Role::grad_closed:
    case Role::grad_source:
    case Role::grad_partial_in:
      return true;
    default:
      return false;
  }
}

struct Use {
  std::size_t position;
  bool writes;
};

}  // namespace

NaiveOrder::NaiveOrder(const RankProgram& rank) {
  const auto position = positions(rank);
  const std::size_t n = rank.order.size();
  // Events: 2 i = step i begins, 2 i + 1 = it ends.
  std::vector<std::vector<std::size_t>> next(2 * n);
  std::map<std::tuple<CommKind, std::int32_t, MessageLane>, std::size_t> last_in_channel;
  std::size_t last_compute = n;
  for (std::size_t i = 0; i < n; ++i) {
    const StepRef& step = rank.order[i];
    const auto index = static_cast<std::size_t>(step.index);
    next[2 * i].push_back(2 * i + 1);
    for (const Wait& wait : rank.waits_of(step.comm ? rank.comm[index].waits : rank.compute[index].waits)) {
      next[2 * position.at({wait.on == Wait::On::comm, +wait.step}) + 1].push_back(2 * i);
    }
    if (!step.comm) {
      if (last_compute != n) next[2 * last_compute + 1].push_back(2 * i);
      last_compute = i;
    } else if (rank.comm[index].kind == CommKind::send || rank.comm[index].kind == CommKind::receive) {
      const std::tuple channel{rank.comm[index].kind, rank.comm[index].peer.value, rank.comm[index].lane};
      const auto before = last_in_channel.find(channel);
      if (before != last_in_channel.end()) next[2 * before->second].push_back(2 * i);
      last_in_channel[channel] = i;
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<bool> seen(2 * n, false);
    std::vector<std::size_t> stack = {2 * i + 1};
    while (!stack.empty()) {
      const std::size_t event = stack.back();
      stack.pop_back();
      for (const std::size_t later : next[event]) {
        if (!seen[later]) stack.push_back(later);
        seen[later] = true;
      }
    }
    reach_.emplace_back(n, false);
    for (std::size_t j = 0; j < n; ++j) {
      reach_[i][j] = seen[2 * j];
    }
  }
}

bool has_race(const RankProgram& rank) {
  const NaiveOrder order(rank);
  std::map<std::pair<SlotClass, std::int32_t>, std::vector<Use>> uses;
  for (std::size_t i = 0; i < rank.order.size(); ++i) {
    const auto index = static_cast<std::size_t>(rank.order[i].index);
    if (rank.order[i].comm) {
      const CommStep& step = rank.comm[index];
      const auto segments = rank.segments_of(step.segments);
      for (std::size_t s = 0; s < segments.size(); ++s) {
        const bool target = step.kind != CommKind::send && !(step.kind == CommKind::add && s == 1);
        uses[{segments[s].slot_class, segments[s].index}].push_back({i, target});
      }
    } else {
      const ComputeStep& step = rank.compute[index];
      for (const Operand& operand : rank.operands_of(step.operands)) {
        uses[{slot_class(operand.role), +operand.slot}].push_back({i, writes(step.compute, operand.role)});
      }
    }
  }
  for (const auto& [slot, list] : uses) {
    for (std::size_t a = 0; a < list.size(); ++a) {
      for (std::size_t b = a + 1; b < list.size(); ++b) {
        if (!list[a].writes && !list[b].writes) continue;
        if (!order.ended_before(list[a].position, list[b].position)) return true;
      }
    }
  }
  return false;
}

}  // namespace plumb::test
