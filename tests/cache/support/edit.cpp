// SPDX-License-Identifier: Apache-2.0
#include "edit.hpp"

#include <algorithm>

namespace plumb::test {

void reorder(RankProgram& rank, const std::vector<StepRef>& order) {
  RankProgram result = rank;
  result.compute.clear();
  result.comm.clear();
  result.order.clear();
  result.waits.clear();
  result.releases.clear();
  std::vector<std::int32_t> new_compute(rank.compute.size(), -1);
  std::vector<std::int32_t> new_comm(rank.comm.size(), -1);
  std::int32_t num_computes = 0;
  std::int32_t num_comms = 0;
  for (const StepRef& step : order) {
    std::int32_t& number = (step.comm ? new_comm : new_compute)[static_cast<std::size_t>(step.index)];
    number = step.comm ? num_comms++ : num_computes++;
    result.order.push_back({step.comm, number});
  }
  const auto move_waits = [&](Range range) {
    Range moved{static_cast<std::uint32_t>(result.waits.size()), 0};
    for (const Wait& wait : rank.waits_of(range)) {
      const auto index = static_cast<std::size_t>(wait.step);
      const std::int32_t number = wait.on == Wait::On::comm ? new_comm[index] : new_compute[index];
      if (number >= 0) result.waits.push_back({wait.on, number});
    }
    moved.end = static_cast<std::uint32_t>(result.waits.size());
    return moved;
  };
  const auto move_step = [&](auto step) {
    step.waits = move_waits(step.waits);
    const Range releases = step.releases;
    step.releases.begin = static_cast<std::uint32_t>(result.releases.size());
    for (const Release& release : rank.releases_of(releases)) {
      const Range waits = move_waits(release.waits);
      result.releases.push_back({release.slot, waits});
    }
    step.releases.end = static_cast<std::uint32_t>(result.releases.size());
    return step;
  };
  for (const StepRef& step : order) {
    const auto index = static_cast<std::size_t>(step.index);
    if (step.comm) {
      result.comm.push_back(move_step(rank.comm[index]));
    } else {
      result.compute.push_back(move_step(rank.compute[index]));
    }
  }
  rank = std::move(result);
}

void drop(RankProgram& rank, StepRef step) {
  std::vector<StepRef> order = rank.order;
  std::erase(order, step);
  reorder(rank, order);
}

void order_by_own_use(RankProgram& rank) {
  const auto waits_for = [&](const StepRef& step, const StepRef& other) {
    const auto index = static_cast<std::size_t>(step.index);
    const auto waits = rank.waits_of(step.comm ? rank.comm[index].waits : rank.compute[index].waits);
    const Wait wait{other.comm ? Wait::On::comm : Wait::On::compute, +other.index};
    return std::find(waits.begin(), waits.end(), wait) != waits.end();
  };
  const auto is = [&](const StepRef& step, CommKind kind) {
    return step.comm && rank.comm[static_cast<std::size_t>(step.index)].kind == kind;
  };
  std::vector<StepRef> order = rank.order;
  const auto at = [&](std::size_t i) { return order.begin() + static_cast<std::ptrdiff_t>(i); };
  for (std::size_t i = order.size(); i-- > 0;) {
    if (!is(order[i], CommKind::receive)) continue;
    std::size_t to = i;
    while (to + 1 < order.size() && !waits_for(order[to + 1], order[i])) {
      ++to;
    }
    std::rotate(at(i), at(i + 1), at(to + 1));
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (!is(order[i], CommKind::send)) continue;
    std::size_t to = i;
    while (to > 0 && !waits_for(order[i], order[to - 1])) {
      --to;
    }
    std::rotate(at(to), at(i), at(i + 1));
  }
  reorder(rank, order);
}

std::optional<std::int32_t> find(const RankProgram& rank, CommKind kind, std::int32_t from) {
  for (auto i = static_cast<std::size_t>(from); i < rank.comm.size(); ++i) {
    if (rank.comm[i].kind == kind) return static_cast<std::int32_t>(i);
  }
  return std::nullopt;
}

}  // namespace plumb::test
