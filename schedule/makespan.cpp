// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/makespan.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "quote.hpp"

namespace plumb {
namespace {

constexpr double never = -1;

class TimedRun {
 public:
  TimedRun(const Schedule& schedule, std::span<const ChunkTimes> times, const PairTiming& pairs)
      : schedule_(schedule),
        layout_(schedule.layout),
        times_(times),
        pairs_(pairs),
        next_(schedule.ranks.size()),
        queued_(schedule.ranks.size(), true) {
    const auto size = static_cast<std::size_t>(layout_.num_chunks()) * static_cast<std::size_t>(layout_.microbatches());
    forward_end_.assign(size, never);
    backward_end_.assign(size, never);
    timeline_.ranks.resize(schedule.ranks.size());
    for (const auto& actions : schedule.ranks)
      timeline_.spans.emplace_back(actions.size());
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
      ready_.push_back(RankId(rank));
  }

  ComputeTimeline run() && {
    while (!ready_.empty()) {
      const RankId rank = ready_.back();
      ready_.pop_back();
      queued_[rank.index()] = false;
      while (advance(rank)) {
      }
    }
    require_finished();
    return std::move(timeline_);
  }

 private:
  struct Next {
    std::size_t action = 0;
    bool second_half = false;  // of a pair whose first half has run
  };

  std::size_t index(ChunkId chunk, Microbatch m) const {
    return chunk.index() * static_cast<std::size_t>(layout_.microbatches()) + m.index();
  }

  double duration(const Compute& compute) const {
    const ChunkTimes& times = times_.size() == 1 ? times_[0] : times_[compute.chunk.index()];
    switch (compute.op) {
      case Op::forward:
        return times.forward;
      case Op::backward:
        return times.backward_input + times.backward_weight;
      case Op::backward_input:
        return times.backward_input;
      case Op::backward_weight:
        return times.backward_weight;
    }
    return 0;
  }

  double inputs_ready(const Compute& compute) const {
    const auto [op, chunk, m] = compute;
    if (op == Op::forward) return chunk.value == 0 ? 0 : forward_end_[index(chunk.previous(), m)];
    if (op == Op::backward_weight) return backward_end_[index(chunk, m)];
    const double own = forward_end_[index(chunk, m)];
    if (own == never || chunk.value == layout_.num_chunks() - 1) return own;
    return backward_end_[index(chunk.next(), m)];
  }

  // Runs the next action of a rank, or the next half of a pair; false if its inputs are not known yet.
  bool advance(RankId rank) {
    Next& next = next_[rank.index()];
    const std::vector<Action>& actions = schedule_.ranks[rank.index()];
    if (next.action == actions.size()) return false;
    const Action& action = actions[next.action];
    const Compute& compute = next.second_half ? *action.second : action.first;
    const bool is_whole_pair = action.second && pairs_.together;
    double ready = inputs_ready(compute);
    double lasts = duration(compute);
    if (is_whole_pair) {
      const double other = inputs_ready(*action.second);
      ready = ready == never || other == never ? never : std::max(ready, other);
      lasts = pairs_.share * (lasts + duration(*action.second));
    }
    if (ready == never) return false;

    RankTimes& times = timeline_.ranks[rank.index()];
    const double start = std::max(times.last, ready);
    ActionSpan& span = timeline_.spans[rank.index()][next.action];
    if (!next.second_half) span.start = start;
    if (next.action == 0 && !next.second_half) times.first = start;
    span.end = times.last = start + lasts;
    times.busy += lasts;
    timeline_.makespan = std::max(timeline_.makespan, times.last);
    finish(compute, times.last);
    if (is_whole_pair) finish(*action.second, times.last);
    next.second_half = action.second && !is_whole_pair && !next.second_half;
    next.action += next.second_half ? 0U : 1U;
    return true;
  }

  void finish(const Compute& compute, double end) {
    if (compute.op == Op::backward_weight) return;
    const bool forward = compute.op == Op::forward;
    (forward ? forward_end_ : backward_end_)[index(compute.chunk, compute.microbatch)] = end;
    const ChunkId waiting = forward ? compute.chunk.next() : compute.chunk.previous();
    if (waiting.value < 0 || waiting.value >= layout_.num_chunks()) return;
    const RankId rank = layout_.rank_of(waiting);
    if (queued_[rank.index()]) return;
    queued_[rank.index()] = true;
    ready_.push_back(rank);
  }

  void require_finished() const {
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      const std::size_t next = next_[rank].action;
      if (next == schedule_.ranks[rank].size()) continue;
      throw InputError(fmt::format("schedule {} cannot run to its end: rank {}, action {} ({}) never starts",
                                   quoted(schedule_.name), rank, next, to_string(schedule_.ranks[rank][next])));
    }
  }

  const Schedule& schedule_;
  const Layout& layout_;
  std::span<const ChunkTimes> times_;
  const PairTiming& pairs_;
  std::vector<Next> next_;    // per rank
  std::vector<bool> queued_;  // per rank: stands in ready_
  std::vector<RankId> ready_;
  std::vector<double> forward_end_;
  std::vector<double> backward_end_;
  ComputeTimeline timeline_;
};

void require_times(const Schedule& schedule, std::span<const ChunkTimes> times, const PairTiming& pairs) {
  const auto chunks = static_cast<std::size_t>(schedule.layout.num_chunks());
  if (times.size() != 1 && times.size() != chunks) {
    throw InputError(
        fmt::format("{} chunk times for {} chunks: give one for all or one for each", times.size(), chunks));
  }
  const auto legal = [](double time) { return std::isfinite(time) && time >= 0; };
  for (std::size_t chunk = 0; chunk < times.size(); ++chunk) {
    const ChunkTimes& t = times[chunk];
    if (legal(t.forward) && legal(t.backward_input) && legal(t.backward_weight)) continue;
    throw InputError(fmt::format("the times of chunk {} are {}, {}, {} for F, I, W: each must be finite and >= 0",
                                 chunk, t.forward, t.backward_input, t.backward_weight));
  }
  if (!legal(pairs.share)) throw InputError(fmt::format("the share {} of a pair must be finite and >= 0", pairs.share));
  if (!pairs.together && pairs.share != 1) {
    throw InputError(fmt::format("the share of a pair whose halves run in turn is 1, not {}", pairs.share));
  }
}

}  // namespace

ComputeTimeline time_schedule(const Schedule& schedule, std::span<const ChunkTimes> times, const PairTiming& pairs) {
  require_times(schedule, times, pairs);
  return TimedRun(schedule, times, pairs).run();
}

ComputeTimeline time_schedule(const Schedule& schedule, const ChunkTimes& times, const PairTiming& pairs) {
  return time_schedule(schedule, std::span(&times, 1), pairs);
}

std::vector<int> peak_activations(const Schedule& schedule) {
  std::vector<int> peaks(schedule.ranks.size(), 0);
  if (schedule.forward_only) return peaks;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    int alive = 0;
    for (const Action& action : schedule.ranks[rank]) {
      const Compute* halves[] = {&action.first, action.second ? &*action.second : nullptr};
      for (const Compute* compute : halves) {
        if (compute != nullptr && compute->op == Op::forward) peaks[rank] = std::max(peaks[rank], ++alive);
      }
      for (const Compute* compute : halves) {
        if (compute != nullptr && (compute->op == Op::backward || compute->op == Op::backward_weight)) --alive;
      }
    }
  }
  return peaks;
}

}  // namespace plumb
