// SPDX-License-Identifier: Apache-2.0
#include "list_schedule.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "plumb/schedule/invariant.hpp"

namespace plumb {
namespace {

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

std::size_t index(ListOp op) { return static_cast<std::size_t>(op); }

}  // namespace

ListScheduler::ListScheduler(const ListProblem& problem)
    : problem_(problem), microbatches_(problem.microbatches()), ranks_(static_cast<std::size_t>(problem.layout.pp())) {
  for (std::size_t chunk = 0; chunk < problem.chunks(); ++chunk) {
    const std::size_t rank = problem.layout.rank_of(ChunkId(chunk)).index();
    rank_of_.push_back(rank);
    ranks_[rank].chunks.push_back(chunk);
    ranks_[rank].one_microbatch += problem.held[chunk];
  }
}

void ListScheduler::reset() {
  for (std::size_t op = 0; op < 3; ++op) {
    ready_[op].assign(problem_.chunks() * microbatches_, never);
    next_[op].assign(problem_.chunks(), 0);
  }
  std::fill_n(ready_[0].begin(), microbatches_, 0);
  for (Rank& rank : ranks_) {
    rank.free_at = 0;
    rank.wake = 0;
    rank.used = 0;
    rank.oldest = 0;
    rank.started = 0;
    rank.held.assign(microbatches_, 0);
    rank.needed.assign(microbatches_, rank.one_microbatch);
  }
  result_ = {};
  if (with_order_) result_.ranks.resize(ranks_.size());
}

std::int64_t ListScheduler::duration(const Candidate& candidate) const {
  switch (candidate.op) {
    case ListOp::forward:
      return problem_.forward[candidate.chunk];
    case ListOp::input:
      return problem_.input[candidate.chunk];
    case ListOp::weight:
      break;
  }
  return problem_.weight[candidate.chunk];
}

bool ListScheduler::fits(const Rank& rank, std::size_t chunk) const {
  const std::int64_t limit = problem_.limit[rank_of_[chunk]];
  return limit == no_memory_limit || rank.used + problem_.held[chunk] <= limit;
}

bool ListScheduler::admits(const Rank& rank, std::size_t chunk, std::size_t microbatch) const {
  const std::int64_t limit = problem_.limit[rank_of_[chunk]];
  if (limit == no_memory_limit) return true;
  const std::int64_t taken = problem_.held[chunk];
  std::int64_t free = limit - rank.used - taken;
  if (free < 0) return false;
  const std::size_t end = std::max(rank.started, microbatch + 1);
  for (std::size_t m = rank.oldest; m < end; ++m) {
    if (free >= rank.one_microbatch) return true;  // enough for any of the rest
    const std::int64_t here = m == microbatch ? taken : 0;
    if (rank.needed[m] - here > free) return false;
    free += rank.held[m] + here;
  }
  return true;
}

// What the rank could do now or, as far as known, later.
void ListScheduler::consider(const Rank& rank, const ListKeys& keys, std::int64_t now) {
  candidates_.clear();
  for (const std::size_t chunk : rank.chunks) {
    for (const ListOp op : {ListOp::forward, ListOp::input, ListOp::weight}) {
      const std::size_t microbatch = next_[index(op)][chunk];
      if (microbatch == microbatches_ || (op == ListOp::weight && !problem_.split)) continue;
      const std::size_t at = problem_.at(chunk, microbatch);
      if (ready_[index(op)][at] == never) continue;
      if (op == ListOp::forward && !admits(rank, chunk, microbatch)) continue;
      candidates_.push_back({op, chunk, keys.of[index(op)][at], std::max(now, ready_[index(op)][at])});
    }
  }
}

// False: nothing to do before something else happens.
bool ListScheduler::act(std::size_t rank_index, const ListKeys& keys) {
  Rank& rank = ranks_[rank_index];
  const std::int64_t now = rank.wake;
  consider(rank, keys, now);
  const auto pick = [&](auto&& legal) {
    Candidate best;
    for (const Candidate& candidate : candidates_) {
      if (legal(candidate) && candidate.key < best.key) best = candidate;
    }
    return best;
  };
  Candidate best = pick([&](const Candidate& c) { return c.ready == now; });
  if (!best.exists()) {
    rank.wake = never;
    for (const Candidate& candidate : candidates_)
      rank.wake = std::min(rank.wake, candidate.ready);
    return false;
  }
  const std::int64_t patience = duration(best) / 8 * keys.patience;
  std::int64_t until = never;
  for (const Candidate& c : candidates_) {
    if (c.key < best.key && c.ready > now && c.ready - now < patience) until = std::min(until, c.ready);
  }
  if (until != never) {
    best = pick([&](const Candidate& c) { return c.ready == now && duration(c) <= until - now; });
    if (!best.exists()) {
      rank.wake = until;
      return false;
    }
  }
  start(rank_index, best, now);
  return true;
}

bool ListScheduler::act_in_order(std::size_t rank_index, const ListKeys& keys) {
  Rank& rank = ranks_[rank_index];
  const std::int64_t now = rank.wake;
  Candidate best;
  for (const std::size_t chunk : rank.chunks) {
    for (const ListOp op : {ListOp::forward, ListOp::input, ListOp::weight}) {
      const std::size_t microbatch = next_[index(op)][chunk];
      if (microbatch == microbatches_ || (op == ListOp::weight && !problem_.split)) continue;
      const std::size_t at = problem_.at(chunk, microbatch);
      if (keys.of[index(op)][at] < best.key) best = {op, chunk, keys.of[index(op)][at], ready_[index(op)][at]};
    }
  }
  if (!best.exists() || (best.op == ListOp::forward && !fits(rank, best.chunk)) || best.ready > now) {
    rank.wake = best.exists() && best.ready > now ? best.ready : never;
    return false;
  }
  start(rank_index, best, now);
  return true;
}

void ListScheduler::arrive(ListOp op, std::size_t chunk, std::size_t microbatch, std::int64_t at) {
  ready_[index(op)][problem_.at(chunk, microbatch)] = at;
  Rank& rank = ranks_[rank_of_[chunk]];
  rank.wake = std::min(rank.wake, std::max(at, rank.free_at));
}

void ListScheduler::start(std::size_t rank_index, const Candidate& candidate, std::int64_t now) {
  Rank& rank = ranks_[rank_index];
  const std::size_t chunk = candidate.chunk;
  const std::size_t microbatch = next_[index(candidate.op)][chunk]++;
  const std::int64_t end = now + duration(candidate);
  rank.free_at = end;
  rank.wake = end;
  const auto leave = [&](std::int64_t memory) {
    rank.used -= memory;
    rank.held[microbatch] -= memory;
  };
  switch (candidate.op) {
    case ListOp::forward:
      rank.used += problem_.held[chunk];
      rank.held[microbatch] += problem_.held[chunk];
      rank.needed[microbatch] -= problem_.held[chunk];
      rank.started = std::max(rank.started, microbatch + 1);
      if (chunk + 1 < problem_.chunks()) {
        arrive(ListOp::forward, chunk + 1, microbatch, end + problem_.hop_forward[chunk]);
      } else {
        arrive(ListOp::input, chunk, microbatch, end);
      }
      break;
    case ListOp::input:
      // The memory is free when the computation ends, and the rank does nothing else until then.
      leave(problem_.split ? problem_.held[chunk] - problem_.kept[chunk] : problem_.held[chunk]);
      if (chunk > 0) arrive(ListOp::input, chunk - 1, microbatch, end + problem_.hop_backward[chunk]);
      if (problem_.split) arrive(ListOp::weight, chunk, microbatch, end);
      break;
    case ListOp::weight:
      leave(problem_.kept[chunk]);
      break;
  }
  const ListOp last = problem_.split ? ListOp::weight : ListOp::input;
  if (candidate.op == last) {
    const auto left = [&](std::size_t m) {
      return std::all_of(rank.chunks.begin(), rank.chunks.end(),
                         [&](std::size_t c) { return next_[index(last)][c] > m; });
    };
    while (rank.oldest < microbatches_ && left(rank.oldest))
      ++rank.oldest;
  }
  if (with_order_) {
    result_.ranks[rank_index].push_back(
        {candidate.op, static_cast<std::int32_t>(chunk), static_cast<std::int32_t>(microbatch), now});
  }
}

ListResult ListScheduler::run(const ListKeys& keys, bool with_order) {
  with_order_ = with_order;
  reset();
  std::int64_t left = problem_.num_computes();
  while (left > 0) {
    std::size_t first = 0;
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].wake < ranks_[first].wake) first = rank;
    }
    const bool strict = keys.patience == strict_order;
    if (ranks_[first].wake == never) {
      require(strict, [&] { return fmt::format("list scheduler: {} computations are stuck", left); });
      result_.makespan = never;
      result_.sum_of_ends = never;
      return std::move(result_);
    }
    left -= (strict ? act_in_order(first, keys) : act(first, keys)) ? 1 : 0;
  }
  for (const Rank& rank : ranks_) {
    result_.makespan = std::max(result_.makespan, rank.free_at);
    result_.sum_of_ends += rank.free_at / static_cast<std::int64_t>(ranks_.size());
  }
  return std::move(result_);
}

ListKeys spread(const SteadyKeys& keys, const ListProblem& problem) {
  ListKeys all;
  all.patience = keys.patience;
  for (std::size_t op = 0; op < 3; ++op) {
    all.of[op].reserve(problem.chunks() * problem.microbatches());
    for (std::size_t chunk = 0; chunk < problem.chunks(); ++chunk) {
      for (std::size_t m = 0; m < problem.microbatches(); ++m) {
        all.of[op].push_back(keys.of[op][chunk] + static_cast<std::int64_t>(m) * keys.period);
      }
    }
  }
  return all;
}

Schedule as_schedule(const ListResult& result, const ListProblem& problem, std::string name) {
  Schedule schedule{std::move(name), problem.layout, {}, false};
  for (const std::vector<ListCompute>& rank : result.ranks) {
    std::vector<Action>& actions = schedule.ranks.emplace_back();
    actions.reserve(rank.size());
    for (const ListCompute& compute : rank) {
      const Op backward = problem.split ? Op::backward_input : Op::backward;
      const Op op = compute.op == ListOp::forward ? Op::forward
                    : compute.op == ListOp::input ? backward
                                                  : Op::backward_weight;
      actions.push_back({{op, ChunkId(compute.chunk), Microbatch(compute.microbatch)}, std::nullopt});
    }
  }
  return schedule;
}

}  // namespace plumb
