// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/arbiter.hpp"

#include <algorithm>

namespace plumb {

namespace {

bool before(const NicArbiter::Request& a, const NicArbiter::Request& b) {
  if (a.lane != b.lane) {
    return a.lane == MessageLane::urgent;
  }
  return a.ready_at != b.ready_at ? a.ready_at < b.ready_at : a.order < b.order;
}

}  // namespace

bool NicArbiter::Later::operator()(const Request& a, const Request& b) const { return before(b, a); }

NicArbiter::NicArbiter(int num_ranks)
    : egress_busy_(static_cast<std::size_t>(num_ranks)),
      ingress_busy_(static_cast<std::size_t>(num_ranks)),
      pairs_from_(static_cast<std::size_t>(num_ranks)),
      pairs_to_(static_cast<std::size_t>(num_ranks)) {}

std::size_t NicArbiter::pair_index(RankId from, RankId to) {
  for (const std::int32_t pair : pairs_from_[from.index()]) {
    if (pairs_[static_cast<std::size_t>(pair)].to == to) {
      return static_cast<std::size_t>(pair);
    }
  }
  const auto pair = static_cast<std::int32_t>(pairs_.size());
  pairs_.push_back({.from = from, .to = to, .waiting = {}});
  is_touched_.push_back(false);
  pairs_from_[from.index()].push_back(pair);
  pairs_to_[to.index()].push_back(pair);
  return static_cast<std::size_t>(pair);
}

void NicArbiter::mark(std::size_t pair) {
  if (!is_touched_[pair]) {
    is_touched_[pair] = true;
    touched_.push_back(static_cast<std::int32_t>(pair));
  }
}

void NicArbiter::submit(const Request& request) {
  const std::size_t pair = pair_index(request.from, request.to);
  pairs_[pair].waiting.push(request);
  mark(pair);
}

void NicArbiter::release(RankId from, RankId to) {
  egress_busy_[from.index()] = false;
  ingress_busy_[to.index()] = false;
  for (const std::int32_t pair : pairs_from_[from.index()]) {
    mark(static_cast<std::size_t>(pair));
  }
  for (const std::int32_t pair : pairs_to_[to.index()]) {
    mark(static_cast<std::size_t>(pair));
  }
}

void NicArbiter::start_ready(std::vector<Request>& started) {
  // Only the best of each pair can start, and a start makes both ends busy: one pass over the heads, best first, is
  // exact.
  std::vector<std::int32_t>& candidates = touched_;
  for (const std::int32_t pair : candidates) {
    is_touched_[static_cast<std::size_t>(pair)] = false;
  }
  std::erase_if(candidates, [this](std::int32_t index) {
    const Pair& pair = pairs_[static_cast<std::size_t>(index)];
    return pair.waiting.empty() || egress_busy_[pair.from.index()] || ingress_busy_[pair.to.index()];
  });
  std::sort(candidates.begin(), candidates.end(), [this](std::int32_t a, std::int32_t b) {
    return before(pairs_[static_cast<std::size_t>(a)].waiting.top(), pairs_[static_cast<std::size_t>(b)].waiting.top());
  });
  for (const std::int32_t index : candidates) {
    Pair& pair = pairs_[static_cast<std::size_t>(index)];
    if (egress_busy_[pair.from.index()] || ingress_busy_[pair.to.index()]) {
      continue;
    }
    egress_busy_[pair.from.index()] = true;
    ingress_busy_[pair.to.index()] = true;
    started.push_back(pair.waiting.top());
    pair.waiting.pop();
  }
  candidates.clear();
}

}  // namespace plumb
