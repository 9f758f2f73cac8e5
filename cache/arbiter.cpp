// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/arbiter.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

namespace plumb {

template <class Visit>
void NicArbiter::RankSet::for_each_also_in(const RankSet& other, Visit&& visit) const {
  for (std::size_t word = 0; word < words_.size(); ++word) {
    for (std::uint64_t both = words_[word] & other.words_[word]; both != 0; both &= both - 1) {
      visit(RankId(word * 64 + static_cast<std::size_t>(std::countr_zero(both))));
    }
  }
}

NicArbiter::NicArbiter(int num_ranks, Duplex duplex)
    : num_ranks_(static_cast<std::size_t>(num_ranks)),
      duplex_(duplex),
      link_of_(num_ranks_ * num_ranks_, -1),
      free_(2, RankSet(num_ranks_)),
      waiting_to_(num_ranks_, RankSet(num_ranks_)),
      waiting_from_(num_ranks_, RankSet(num_ranks_)),
      is_touched_(num_ranks_, false) {
  for (RankId rank; rank.index() < num_ranks_; rank = rank.next()) {
    for (RankSet& ends : free_)
      ends.insert(rank);
  }
}

NicArbiter::Link NicArbiter::link(RankId from, RankId to) {
  std::int32_t& number = cell(from, to);
  if (number < 0) {
    number = static_cast<std::int32_t>(ends_.size());
    ends_.push_back({from, to});
    best_.emplace_back();
    others_.emplace_back();
  }
  return Link(number);
}

void NicArbiter::touch(RankId from) {
  if (is_touched_[from.index()]) return;
  is_touched_[from.index()] = true;
  touched_.push_back(from);
}

void NicArbiter::submit(Link link, MessageLane lane, std::int64_t ready_at, std::int64_t order) {
  const auto [from, to] = ends_[link.index()];
  Waiting waiting{ready_at | (lane == MessageLane::bulk ? bulk_bit : 0), order};
  Waiting& best = best_[link.index()];
  if (!waiting_to_[from.index()].contains(to)) {
    waiting_to_[from.index()].insert(to);
    waiting_from_[to.index()].insert(from);
    best = waiting;
  } else {
    if (best > waiting) std::swap(best, waiting);
    std::vector<Waiting>& others = others_[link.index()];
    others.push_back(waiting);
    std::push_heap(others.begin(), others.end(), std::greater<>());
  }
  touch(from);
}

void NicArbiter::release(Link link) {
  const auto [from, to] = ends_[link.index()];
  free_egress().insert(from);
  free_ingress().insert(to);
  touch(from);
  freed_ingress_.push_back(to);
  if (duplex_ == Duplex::half) {
    touch(to);
    freed_ingress_.push_back(from);
  }
}

// The best message that this egress could start now.
void NicArbiter::add_best_of(RankId from) {
  if (!free_egress().contains(from)) return;
  Candidate candidate{{}, Link(-1)};
  waiting_to_[from.index()].for_each_also_in(free_ingress(), [&](RankId to) {
    const Link link(cell(from, to));
    if (candidate.link.value < 0 || candidate.best > best_[link.index()]) candidate = {best_[link.index()], link};
  });
  if (candidate.link.value < 0) return;
  candidates_.push_back(candidate);
  std::push_heap(candidates_.begin(), candidates_.end(), std::greater<>());
}

void NicArbiter::start_ready(std::vector<Started>& started) {
  // After the last call nothing could start, so whatever can now has an end that was freed or was submitted since.
  for (const RankId to : freed_ingress_) {
    waiting_from_[to.index()].for_each_also_in(free_egress(), [&](RankId from) { touch(from); });
  }
  freed_ingress_.clear();
  for (const RankId from : touched_) {
    is_touched_[from.index()] = false;
    add_best_of(from);
  }
  touched_.clear();
  // The best of all is the best of its egress; one that lost its receiver to a better message is looked for anew.
  while (!candidates_.empty()) {
    const Candidate candidate = candidates_.front();
    std::pop_heap(candidates_.begin(), candidates_.end(), std::greater<>());
    candidates_.pop_back();
    const auto [from, to] = ends_[candidate.link.index()];
    if (!free_egress().contains(from) || !free_ingress().contains(to)) {
      add_best_of(from);
      continue;
    }
    free_egress().erase(from);
    free_ingress().erase(to);
    started.push_back({candidate.link, candidate.best.order});
    std::vector<Waiting>& others = others_[candidate.link.index()];
    if (others.empty()) {
      waiting_to_[from.index()].erase(to);
      waiting_from_[to.index()].erase(from);
    } else {
      best_[candidate.link.index()] = others.front();
      std::pop_heap(others.begin(), others.end(), std::greater<>());
      others.pop_back();
    }
  }
}

void NicArbiter::postpone(std::int64_t time, std::int64_t order) {
  // The same for all, so that the heaps stay heaps. Where nothing waits the fields mean nothing.
  for (Waiting& waiting : best_)
    waiting = {waiting.key + time, waiting.order + order};
  for (std::vector<Waiting>& others : others_) {
    for (Waiting& waiting : others)
      waiting = {waiting.key + time, waiting.order + order};
  }
}

}  // namespace plumb
