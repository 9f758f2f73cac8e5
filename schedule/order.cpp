// SPDX-License-Identifier: Apache-2.0
#include "order.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "plumb/schedule/invariant.hpp"

namespace plumb {
namespace {

class UntimedRun {
 public:
  explicit UntimedRun(const Schedule& schedule)
      : schedule_(schedule),
        layout_(schedule.layout),
        next_(schedule.ranks.size(), 0),
        queued_(schedule.ranks.size(), true),
        done_(static_cast<std::size_t>(layout_.num_chunks()) * static_cast<std::size_t>(layout_.microbatches()), 0) {
    for (std::size_t rank = 0; rank < next_.size(); ++rank)
      ready_.push_back(RankId(rank));
  }

  void run() {
    while (!ready_.empty()) {
      const RankId rank = ready_.back();
      ready_.pop_back();
      queued_[rank.index()] = false;
      while (const Action* action = head(rank)) {
        if (missing_input(*action)) break;
        finish(action->first);
        if (action->second) finish(*action->second);
        ++next_[rank.index()];
      }
    }
  }

  // Walks from a stuck rank to the rank that holds what it waits for, until a rank comes up again: the walk from there
  // on is a cycle.
  std::vector<ScheduleFault> cycle() const {
    std::vector<RankId> walk;
    std::vector<bool> visited(next_.size(), false);
    RankId rank = first_stuck();
    if (rank.index() == next_.size()) return {};
    while (!visited[rank.index()]) {
      visited[rank.index()] = true;
      walk.push_back(rank);
      rank = layout_.rank_of(missing_input(*head(rank))->chunk);
    }
    std::vector<ScheduleFault> cycle;
    bool inside = false;
    for (const RankId stuck : walk) {
      inside = inside || stuck == rank;
      if (inside) describe(stuck, cycle);
    }
    return cycle;
  }

 private:
  enum : std::uint8_t { forward_done = 1, backward_done = 2 };

  const Action* head(RankId rank) const {
    const std::vector<Action>& actions = schedule_.ranks[rank.index()];
    return next_[rank.index()] < actions.size() ? &actions[next_[rank.index()]] : nullptr;
  }

  std::size_t index(ChunkId chunk, Microbatch microbatch) const {
    return chunk.index() * static_cast<std::size_t>(layout_.microbatches()) + microbatch.index();
  }

  bool is_done(ChunkId chunk, Microbatch microbatch, std::uint8_t what) const {
    return (done_[index(chunk, microbatch)] & what) != 0;
  }

  // An input that does not exist yet. The backward of a chunk is named B here even if it is an I: see holder().
  std::optional<Compute> missing_input(const Compute& compute) const {
    const auto [op, chunk, m] = compute;
    if (op == Op::forward) {
      if (chunk.value == 0 || is_done(chunk.previous(), m, forward_done)) return std::nullopt;
      return Compute{Op::forward, chunk.previous(), m};
    }
    if (op == Op::backward_weight) {
      if (is_done(chunk, m, backward_done)) return std::nullopt;
      return Compute{Op::backward, chunk, m};
    }
    if (!is_done(chunk, m, forward_done)) return Compute{Op::forward, chunk, m};
    const bool last = chunk.value == layout_.num_chunks() - 1;
    if (last || is_done(chunk.next(), m, backward_done)) return std::nullopt;
    return Compute{Op::backward, chunk.next(), m};
  }

  // Both halves of a pair start together, so neither may need the other.
  std::optional<Compute> missing_input(const Action& action) const {
    const std::optional<Compute> first = missing_input(action.first);
    return first || !action.second ? first : missing_input(*action.second);
  }

  void finish(const Compute& compute) {
    if (compute.op == Op::backward_weight) return;
    const bool forward = compute.op == Op::forward;
    std::uint8_t& done = done_[index(compute.chunk, compute.microbatch)];
    done = static_cast<std::uint8_t>(done | (forward ? forward_done : backward_done));
    const ChunkId waiting = forward ? compute.chunk.next() : compute.chunk.previous();
    if (waiting.value < 0 || waiting.value >= layout_.num_chunks()) return;
    const RankId rank = layout_.rank_of(waiting);
    if (!queued_[rank.index()]) {
      queued_[rank.index()] = true;
      ready_.push_back(rank);
    }
  }

  RankId first_stuck() const {
    std::size_t rank = 0;
    while (rank < next_.size() && head(RankId(rank)) == nullptr)
      ++rank;
    return RankId(rank);
  }

  static bool gives(const Compute& compute, const Compute& wanted) {
    const bool same_kind = wanted.op == Op::forward ? compute.op == Op::forward
                                                    : compute.op == Op::backward || compute.op == Op::backward_input;
    return same_kind && compute.chunk == wanted.chunk && compute.microbatch == wanted.microbatch;
  }

  // Where a wanted value will be made: column on its rank, at or after the rank's head.
  std::size_t holder(const Compute& wanted) const {
    const RankId rank = layout_.rank_of(wanted.chunk);
    const std::vector<Action>& actions = schedule_.ranks[rank.index()];
    for (std::size_t column = next_[rank.index()]; column < actions.size(); ++column) {
      const Action& action = actions[column];
      if (gives(action.first, wanted) || (action.second && gives(*action.second, wanted))) return column;
    }
    broken_invariant(fmt::format("nothing on rank {} makes {}, which the completeness check had seen", rank.value,
                                 to_string(wanted)));
  }

  void describe(RankId rank, std::vector<ScheduleFault>& cycle) const {
    const Compute wanted = *missing_input(*head(rank));
    const RankId other = layout_.rank_of(wanted.chunk);
    const std::size_t column = holder(wanted);
    const std::string token = to_string(schedule_.ranks[other.index()][column]);
    cycle.push_back({rank, next_[rank.index()], to_string(*head(rank)),
                     fmt::format("waits for {} on rank {}", token, other.value)});
    if (column == next_[other.index()]) return;  // the other rank is stuck at that very action
    cycle.push_back({other, column, token, fmt::format("stands behind {}", to_string(*head(other)))});
  }

  const Schedule& schedule_;
  const Layout& layout_;
  std::vector<std::size_t> next_;  // per rank
  std::vector<bool> queued_;       // per rank: stands in ready_
  std::vector<RankId> ready_;
  std::vector<std::uint8_t> done_;
};

}  // namespace

std::vector<ScheduleFault> find_cycle(const Schedule& schedule) {
  UntimedRun run(schedule);
  run.run();
  return run.cycle();
}

}  // namespace plumb
