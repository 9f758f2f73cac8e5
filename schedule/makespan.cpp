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
  TimedRun(const Schedule& schedule, std::span<const ChunkTimes> times, double pair_factor)
      : schedule_(schedule), layout_(schedule.layout), times_(times), pair_factor_(pair_factor) {
    const auto size = static_cast<std::size_t>(layout_.num_chunks()) * static_cast<std::size_t>(layout_.microbatches());
    forward_end_.assign(size, never);
    backward_end_.assign(size, never);
    timeline_.ranks.resize(schedule.ranks.size());
    for (const auto& actions : schedule.ranks)
      timeline_.spans.emplace_back().reserve(actions.size());
  }

  ComputeTimeline run() && {
    std::vector<RankId> ready;
    std::vector<bool> queued(schedule_.ranks.size(), true);
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank)
      ready.push_back(RankId(rank));
    while (!ready.empty()) {
      const RankId rank = ready.back();
      ready.pop_back();
      queued[rank.index()] = false;
      while (advance(rank)) {
        const Action& action = schedule_.ranks[rank.index()][timeline_.spans[rank.index()].size() - 1];
        for (const Compute* compute : {&action.first, action.second ? &*action.second : nullptr}) {
          if (compute == nullptr || compute->op == Op::backward_weight) continue;
          const ChunkId waiting = compute->op == Op::forward ? compute->chunk.next() : compute->chunk.previous();
          if (waiting.value < 0 || waiting.value >= layout_.num_chunks()) continue;
          const RankId other = layout_.rank_of(waiting);
          if (queued[other.index()]) continue;
          queued[other.index()] = true;
          ready.push_back(other);
        }
      }
    }
    require_finished();
    return std::move(timeline_);
  }

 private:
  std::size_t index(ChunkId chunk, Microbatch m) const {
    return chunk.index() * static_cast<std::size_t>(layout_.microbatches()) + m.index();
  }

  const ChunkTimes& times_of(ChunkId chunk) const { return times_.size() == 1 ? times_[0] : times_[chunk.index()]; }

  double duration(const Compute& compute) const {
    const ChunkTimes& times = times_of(compute.chunk);
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

  bool advance(RankId rank) {
    std::vector<ActionSpan>& spans = timeline_.spans[rank.index()];
    const std::vector<Action>& actions = schedule_.ranks[rank.index()];
    if (spans.size() == actions.size()) return false;
    const Action& action = actions[spans.size()];
    RankTimes& times = timeline_.ranks[rank.index()];
    double ready = inputs_ready(action.first);
    double lasts = duration(action.first);
    if (action.second) {
      const double other = inputs_ready(*action.second);
      ready = ready == never || other == never ? never : std::max(ready, other);
      lasts = pair_factor_ * (lasts + duration(*action.second));
    }
    if (ready == never) return false;
    const double start = std::max(times.last, ready);
    if (spans.empty()) times.first = start;
    times.last = start + lasts;
    times.busy += lasts;
    spans.push_back({start, times.last});
    timeline_.makespan = std::max(timeline_.makespan, times.last);
    finish(action.first, times.last);
    if (action.second) finish(*action.second, times.last);
    return true;
  }

  void finish(const Compute& compute, double end) {
    if (compute.op == Op::backward_weight) return;
    (compute.op == Op::forward ? forward_end_ : backward_end_)[index(compute.chunk, compute.microbatch)] = end;
  }

  void require_finished() const {
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      const std::size_t next = timeline_.spans[rank].size();
      if (next == schedule_.ranks[rank].size()) continue;
      throw InputError(fmt::format("schedule {} cannot run to its end: rank {}, action {} ({}) never starts",
                                   quoted(schedule_.name), rank, next, to_string(schedule_.ranks[rank][next])));
    }
  }

  const Schedule& schedule_;
  const Layout& layout_;
  std::span<const ChunkTimes> times_;
  double pair_factor_;
  std::vector<double> forward_end_;
  std::vector<double> backward_end_;
  ComputeTimeline timeline_;
};

void require_times(const Schedule& schedule, std::span<const ChunkTimes> times, double pair_factor) {
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
  if (!legal(pair_factor)) throw InputError(fmt::format("pair factor {} must be finite and >= 0", pair_factor));
}

}  // namespace

ComputeTimeline time_schedule(const Schedule& schedule, std::span<const ChunkTimes> times, double pair_factor) {
  require_times(schedule, times, pair_factor);
  return TimedRun(schedule, times, pair_factor).run();
}

ComputeTimeline time_schedule(const Schedule& schedule, const ChunkTimes& times, double pair_factor) {
  return time_schedule(schedule, std::span(&times, 1), pair_factor);
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
