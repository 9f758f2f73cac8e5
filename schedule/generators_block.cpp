// SPDX-License-Identifier: Apache-2.0
//
// V-Half and V-Min. The building block only gives each rank the order of its F and I. A simulated run in unit steps
// then closes the gaps and puts each W where its rank would wait, or where memory demands it.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "blocks.hpp"
#include "building.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/schedule/invariant.hpp"

namespace plumb {
namespace {

// What stands at each place of the offsets.
constexpr std::array<Op, 4> part_op = {Op::forward, Op::forward, Op::backward_input, Op::backward_input};
constexpr std::array<int, 4> part_stage = {0, 1, 1, 0};

// In every period a rank has one step for each of the four, and two are left for W.
void require_apart(const block::Offsets& offsets, RankId rank) {
  unsigned taken = 0;
  for (const std::int64_t offset : offsets)
    taken |= 1U << (offset % block::period);
  require(std::popcount(taken) == 4, [&] {
    return fmt::format("two of the starts {}, {}, {}, {} on rank {} meet modulo {}", offsets[0], offsets[1], offsets[2],
                       offsets[3], rank.value, block::period);
  });
}

// All F and I of a rank in the order of their starts.
std::vector<Compute> order_of(const Layout& layout, RankId rank, const block::Offsets& offsets) {
  require_apart(offsets, rank);
  std::array<int, 4> next{};
  const auto start = [&](std::size_t part) {
    return next[part] < layout.microbatches() ? offsets[part] + std::int64_t{block::period} * next[part] : INT64_MAX;
  };
  std::vector<Compute> order(4 * static_cast<std::size_t>(layout.microbatches()));
  for (Compute& compute : order) {
    std::size_t first = 0;
    for (std::size_t part = 1; part < 4; ++part) {
      if (start(part) < start(first)) first = part;
    }
    compute = {part_op[first], layout.chunk_of(rank, VirtualStage(part_stage[first])), Microbatch(next[first]++)};
  }
  return order;
}

// Unit steps: in each, every rank that may have something to do takes one action whose inputs were there before.
class UnitRun {
 public:
  UnitRun(const Layout& layout, std::vector<std::vector<Compute>> orders, int limit)
      : layout_(layout), limit_(limit), orders_(std::move(orders)), ranks_(orders_.size()) {
    done_.resize(static_cast<std::size_t>(layout.num_chunks()) * static_cast<std::size_t>(layout.microbatches()));
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].actions.reserve(6 * static_cast<std::size_t>(layout.microbatches()));
      ranks_[rank].weights.reserve(2 * static_cast<std::size_t>(layout.microbatches()));
      wake(RankId(rank));
    }
  }

  std::vector<std::vector<Action>> make() && {
    std::vector<RankId> awake;
    std::vector<RankId> moved;
    while (!woken_.empty()) {
      awake.swap(woken_);
      woken_.clear();
      moved.clear();
      for (const RankId rank : awake) {
        ranks_[rank.index()].is_woken = false;
        if (step(ranks_[rank.index()], orders_[rank.index()])) moved.push_back(rank);
      }
      for (const RankId rank : moved)
        finish(rank, ranks_[rank.index()].actions.back().first);
    }
    std::vector<std::vector<Action>> actions;
    for (Rank& rank : ranks_)
      actions.push_back(std::move(rank.actions));
    return actions;
  }

 private:
  enum : std::uint8_t { forward_done = 1, backward_done = 2 };

  struct Rank {
    std::vector<Action> actions;
    std::size_t next = 0;          // in its order
    std::vector<Compute> weights;  // every W queued so far
    std::size_t next_weight = 0;
    int alive = 0;
    bool is_woken = false;
  };

  void wake(RankId rank) {
    if (std::exchange(ranks_[rank.index()].is_woken, true)) return;
    woken_.push_back(rank);
  }

  std::uint8_t& done(ChunkId chunk, Microbatch m) {
    return done_[chunk.index() * static_cast<std::size_t>(layout_.microbatches()) + m.index()];
  }

  bool has_inputs(const Compute& compute) {
    const auto [op, chunk, m] = compute;
    if (op == Op::forward) return chunk.value == 0 || (done(chunk.previous(), m) & forward_done) != 0;
    const bool last = chunk.value == layout_.num_chunks() - 1;
    return last ? (done(chunk, m) & forward_done) != 0 : (done(chunk.next(), m) & backward_done) != 0;
  }

  bool step(Rank& rank, const std::vector<Compute>& order) {
    const Compute* next = rank.next < order.size() ? &order[rank.next] : nullptr;
    const bool has_weight = rank.next_weight < rank.weights.size();
    const bool is_full = next != nullptr && next->op == Op::forward && rank.alive >= limit_ && has_weight;
    if (next != nullptr && !is_full && has_inputs(*next)) {
      ++rank.next;
      rank.actions.push_back({*next, std::nullopt});
      if (next->op == Op::forward) {
        ++rank.alive;
      } else {
        rank.weights.push_back({Op::backward_weight, next->chunk, next->microbatch});
      }
      return true;
    }
    if (!has_weight) return false;
    rank.actions.push_back({rank.weights[rank.next_weight++], std::nullopt});
    --rank.alive;
    return true;
  }

  void finish(RankId rank, const Compute& compute) {
    wake(rank);
    if (compute.op == Op::backward_weight) return;
    const bool forward = compute.op == Op::forward;
    std::uint8_t& state = done(compute.chunk, compute.microbatch);
    state = static_cast<std::uint8_t>(state | (forward ? forward_done : backward_done));
    const ChunkId waiting = forward ? compute.chunk.next() : compute.chunk.previous();
    if (waiting.value >= 0 && waiting.value < layout_.num_chunks()) wake(layout_.rank_of(waiting));
  }

  const Layout& layout_;
  int limit_;  // activations alive on a rank
  std::vector<std::vector<Compute>> orders_;
  std::vector<Rank> ranks_;
  std::vector<RankId> woken_;
  std::vector<std::uint8_t> done_;
};

Schedule from_block(Schedule schedule, block::Offsets (*offsets)(std::int64_t, std::int64_t), int limit) {
  const Layout& layout = schedule.layout;
  std::vector<std::vector<Compute>> orders;
  for (int rank = 0; rank < layout.pp(); ++rank)
    orders.push_back(order_of(layout, RankId(rank), offsets(layout.pp(), rank)));
  if (!schedule.forward_only) {
    schedule.ranks = UnitRun(layout, std::move(orders), limit).make();
    return schedule;
  }
  for (std::size_t rank = 0; rank < orders.size(); ++rank) {
    for (const Compute& compute : orders[rank]) {
      if (compute.op == Op::forward) schedule.ranks[rank].push_back({compute, std::nullopt});
    }
  }
  return schedule;
}

}  // namespace

Schedule v_half(const Layout& layout, bool forward_only) {
  return from_block(empty_schedule(ScheduleKind::v_half, layout, forward_only), block::half,
                    block::half_limit(layout.pp()));
}

Schedule v_min(const Layout& layout, bool forward_only) {
  return from_block(empty_schedule(ScheduleKind::v_min, layout, forward_only), block::third,
                    block::third_limit(layout.pp()));
}

}  // namespace plumb
