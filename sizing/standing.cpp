// SPDX-License-Identifier: Apache-2.0
#include "standing.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace plumb {
namespace {

bool faster(const Evaluated& a, const Evaluated& b) {
  return std::pair(a.outcome.step_us(), a.order) < std::pair(b.outcome.step_us(), b.order);
}

// Routing, group and cuts aside.
bool same_layout(const Candidate& a, const Candidate& b) {
  return a.pp == b.pp && a.vp == b.vp && a.degrees == b.degrees && a.microbatch == b.microbatch &&
         a.recompute == b.recompute && a.sharding == b.sharding && a.schedule == b.schedule;
}

// Steps of 5 per cent: what differs by less makes no other choice.
double grade(double bytes) { return bytes > 0 ? std::floor(std::log(bytes) / std::log1p(front_step)) : -1; }

// At least as good in all three, and better in one or the earlier of equals.
bool beats(const Evaluated& a, double step_us, double peak_bytes, double network_bytes, std::size_t order) {
  const std::tuple own(a.outcome.step_us(), grade(a.outcome.peak_bytes), grade(a.outcome.network_bytes));
  const std::tuple other(step_us, grade(peak_bytes), grade(network_bytes));
  if (std::get<0>(own) > std::get<0>(other) || std::get<1>(own) > std::get<1>(other) ||
      std::get<2>(own) > std::get<2>(other)) {
    return false;
  }
  return own != other || a.order < order;
}

template <class Key>
void keep_faster(std::map<Key, Evaluated>& all, Key key, const Evaluated& one) {
  const auto [found, is_new] = all.try_emplace(key, one);
  if (!is_new && faster(one, found->second)) found->second = one;
}

template <class Key>
bool could_be_first(const std::map<Key, Evaluated>& all, Key key, double step_us) {
  const auto found = all.find(key);
  return found == all.end() || step_us <= found->second.outcome.step_us();
}

}  // namespace

void Standing::add(const Evaluated& one) {
  if (!one.outcome.fits) return;
  keep_faster(by_schedule_, one.candidate.schedule, one);
  keep_faster(by_policy_, one.candidate.policy, one);
  const auto beats_one = [&](const Evaluated& other) {
    return beats(other, one.outcome.step_us(), one.outcome.peak_bytes, one.outcome.network_bytes, one.order);
  };
  if (std::none_of(front_.begin(), front_.end(), beats_one)) {
    std::erase_if(front_, [&](const Evaluated& other) {
      return beats(one, other.outcome.step_us(), other.outcome.peak_bytes, other.outcome.network_bytes, other.order);
    });
    front_.insert(std::upper_bound(front_.begin(), front_.end(), one, faster), one);
  }
  const auto same = std::find_if(best_.begin(), best_.end(),
                                 [&](const Evaluated& other) { return same_layout(other.candidate, one.candidate); });
  if (same != best_.end()) {
    if (!faster(one, *same)) return;
    best_.erase(same);
  }
  best_.insert(std::upper_bound(best_.begin(), best_.end(), one, faster), one);
  if (best_.size() > num_best_) best_.pop_back();
}

bool Standing::could_matter(const Candidate& candidate, const LowerBounds& bounds, std::size_t order) const {
  const auto same = std::find_if(best_.begin(), best_.end(),
                                 [&](const Evaluated& other) { return same_layout(other.candidate, candidate); });
  if (same != best_.end()) {
    if (bounds.step_us <= same->outcome.step_us()) return true;
  } else if (best_.size() < num_best_ || bounds.step_us <= best_.back().outcome.step_us()) {
    return true;
  }
  if (could_be_first(by_schedule_, candidate.schedule, bounds.step_us)) return true;
  if (could_be_first(by_policy_, candidate.policy, bounds.step_us)) return true;
  return std::none_of(front_.begin(), front_.end(), [&](const Evaluated& other) {
    return beats(other, bounds.step_us, bounds.peak_bytes, bounds.network_bytes, order);
  });
}

void Standing::write(SearchResult& result) const {
  result.best = best_;
  result.pareto = front_;
  for (const auto& [kind, one] : by_schedule_)
    result.by_schedule.push_back(one);
  for (const auto& [policy, one] : by_policy_)
    result.by_policy.push_back(one);
}

}  // namespace plumb
