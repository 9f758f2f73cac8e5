// SPDX-License-Identifier: Apache-2.0
#include "compute_order.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "plumb/schedule/invariant.hpp"

namespace plumb {
namespace {

constexpr std::size_t most_bytes = std::size_t{64} << 20;

std::size_t cell(const Layout& layout, std::int32_t microbatch, std::int32_t chunk) {
  return static_cast<std::size_t>(microbatch) * static_cast<std::size_t>(layout.num_chunks()) +
         static_cast<std::size_t>(chunk);
}

// What has run so far, and how far each rank is.
class Walk {
 public:
  explicit Walk(const Schedule& schedule)
      : schedule_(schedule),
        forward_(cell(schedule.layout, schedule.layout.microbatches(), 0)),
        backward_(forward_.size()),
        at_(schedule.ranks.size()) {
    for (const std::vector<Action>& actions : schedule.ranks) {
      std::vector<Compute>& rank = ranks_.emplace_back();
      for (const Action& action : actions) {
        rank.push_back(action.first);
        if (action.second) rank.push_back(*action.second);
      }
    }
  }

  // visit(Compute) in a legal order.
  template <class Visit>
  void run(Visit&& visit) {
    std::vector<RankId> awake;
    for (std::size_t rank = ranks_.size(); rank-- > 0;)
      awake.emplace_back(rank);
    std::size_t left = 0;
    for (const std::vector<Compute>& rank : ranks_)
      left += rank.size();
    while (!awake.empty()) {
      const RankId rank = awake.back();
      awake.pop_back();
      std::size_t& at = at_[rank.index()];
      for (; at < ranks_[rank.index()].size() && is_ready(ranks_[rank.index()][at]); ++at, --left) {
        const Compute& compute = ranks_[rank.index()][at];
        visit(compute);
        if (const std::optional<ChunkId> next = finish(compute)) {
          if (schedule_.layout.rank_of(*next) != rank) awake.push_back(schedule_.layout.rank_of(*next));
        }
      }
    }
    require(left == 0, [&] { return fmt::format("schedule {}: {} computations never run", schedule_.name, left); });
  }

 private:
  bool is_ready(const Compute& c) const {
    if (c.op == Op::forward) {
      return c.chunk.value == 0 || forward_[cell(schedule_.layout, c.microbatch.value, c.chunk.value - 1)];
    }
    if (c.op == Op::backward_weight || c.chunk.value + 1 == schedule_.layout.num_chunks()) return true;
    return backward_[cell(schedule_.layout, c.microbatch.value, c.chunk.value + 1)];
  }

  // The chunk that may go on now.
  std::optional<ChunkId> finish(const Compute& c) {
    if (c.op == Op::backward_weight) return {};
    const bool forward = c.op == Op::forward;
    (forward ? forward_ : backward_)[cell(schedule_.layout, c.microbatch.value, c.chunk.value)] = true;
    const ChunkId next = forward ? c.chunk.next() : c.chunk.previous();
    if (next.value < 0 || next.value >= schedule_.layout.num_chunks()) return {};
    return next;
  }

  const Schedule& schedule_;
  std::vector<bool> forward_;   // [microbatch][chunk]
  std::vector<bool> backward_;  // of B or I
  std::vector<std::size_t> at_;
  std::vector<std::vector<Compute>> ranks_;
};

// What a computation does to the memory of its rank.
struct Held {
  std::vector<double> now;
  std::vector<double> most;

  // What the computation itself needs counts only if it takes time: else nothing is seen of it.
  void run(Op op, RankId rank, const ChunkHoldings& of, SimTime takes) {
    double& here = now[rank.index()];
    const bool backward = op == Op::backward || op == Op::backward_input;
    if (op == Op::forward) here += of.activation + of.values;
    if (backward) here += of.gradients_opened;
    const double passing = op == Op::forward ? of.passing_forward : backward ? of.passing_backward : 0;
    if (takes.count() > 0) most[rank.index()] = std::max(most[rank.index()], here + passing);
    if (backward) here -= of.values + of.gradients_closed;
    if (op == Op::backward || op == Op::backward_weight) here -= of.activation;
  }
};

}  // namespace

ComputeOrder::ComputeOrder(const Schedule& schedule) : layout_(schedule.layout) {
  Walk(schedule).run([&](const Compute& compute) {
    steps_.push_back({compute.microbatch.value, static_cast<std::uint16_t>(compute.chunk.value), compute.op});
  });
}

LeastStep ComputeOrder::least_step(const ChunkNeeds& needs, const std::vector<ActionTimes>& times) const {
  const auto ranks = static_cast<std::size_t>(layout_.pp());
  const auto chunks = static_cast<std::size_t>(layout_.num_chunks());
  std::vector<RankId> rank_of;
  for (ChunkId chunk; chunk.index() < chunks; chunk = chunk.next())
    rank_of.push_back(layout_.rank_of(chunk));
  std::vector<SimTime> forward(chunks * static_cast<std::size_t>(layout_.microbatches()));
  std::vector<SimTime> backward(forward.size());
  std::vector<SimTime> free(ranks);
  Held held{std::vector<double>(ranks), std::vector<double>(ranks)};
  for (const Step& step : steps_) {
    const RankId rank = rank_of[step.chunk];
    const ActionTimes& of = times[step.chunk];
    const std::size_t begin = cell(layout_, step.microbatch, 0);
    SimTime start = free[rank.index()];
    SimTime takes = of.backward_weight;
    if (step.op == Op::forward) {
      takes = of.forward;
      for (const ChunkNeeds::Need& need : needs.forward(step.chunk))
        start = std::max(start, forward[begin + need.chunk] + need.later);
      forward[begin + step.chunk] = start + takes;
    } else if (step.op != Op::backward_weight) {
      takes = step.op == Op::backward ? of.backward : of.backward_input;
      for (const ChunkNeeds::Need& need : needs.backward(step.chunk))
        start = std::max(start, backward[begin + need.chunk] + need.later);
      backward[begin + step.chunk] = start + takes;
    }
    free[rank.index()] = start + takes;
    held.run(step.op, rank, needs.holdings(step.chunk), takes);
  }
  return {*std::max_element(free.begin(), free.end()), std::move(held.most)};
}

std::shared_ptr<const ComputeOrder> ComputeOrders::of(const Candidate& c) {
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Entry>& found = entries_[{c.schedule, c.group, c.pp, c.vp, c.microbatches}];
    if (!found) found = std::make_shared<Entry>();
    found->used = ++now_;
    entry = found;
  }
  std::call_once(entry->made, [&] {
    auto order = std::make_unique<const ComputeOrder>(make_schedule(
        {.kind = c.schedule, .group = c.group > 0 ? std::optional(c.group) : std::nullopt}, layout_of(c)));
    const std::lock_guard lock(mutex_);  // others look through the entries
    bytes_ += order->bytes();
    entry->order = std::move(order);
    forget_oldest();
  });
  return {entry, entry->order.get()};
}

// An entry that is being made has no bytes yet and stays.
void ComputeOrders::forget_oldest() {
  while (bytes_ > most_bytes) {
    auto oldest = entries_.end();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (!entry->second->order || entry->second->used == now_) continue;
      if (oldest == entries_.end() || entry->second->used < oldest->second->used) oldest = entry;
    }
    if (oldest == entries_.end()) return;
    bytes_ -= oldest->second->order->bytes();
    entries_.erase(oldest);
  }
}

}  // namespace plumb
