// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/generators.hpp"

#include <algorithm>
#include <string>

#include "building.hpp"
#include "groups.hpp"

namespace plumb {
namespace {

// What differs between the orders that follow the turns: how many forwards rank 0's neighbours run ahead, and whether
// the backward is split, its W then `lag` backwards behind.
struct Walk {
  std::int64_t warm_up = 0;
  bool split = false;
  std::size_t lag = 0;
};

// Warm-up forwards, then pairs (F, backward), then the remaining backwards. The backward takes the same turns from the
// deepest stage up.
std::vector<Action> one_rank(const Layout& layout, RankId rank, const std::vector<Turn>& turns, const Walk& walk,
                             bool forward_only) {
  const std::size_t size = turns.size();
  const auto forward = [&](std::size_t k) {
    return single(Op::forward, layout.chunk_of(rank, turns[k].stage), turns[k].microbatch);
  };
  const auto backward = [&](Op op, std::size_t k) {
    const VirtualStage stage(layout.vp() - 1 - turns[k].stage.value);
    return single(op, layout.chunk_of(rank, stage), turns[k].microbatch);
  };
  std::vector<Action> actions;
  actions.reserve(size * (forward_only ? 1 : walk.split ? 3 : 2));
  const std::size_t ahead = forward_only ? size : std::min(static_cast<std::size_t>(walk.warm_up), size);
  for (std::size_t k = 0; k < ahead; ++k)
    actions.push_back(forward(k));
  if (forward_only) return actions;
  for (std::size_t k = 0; k < size; ++k) {
    if (k + ahead < size) actions.push_back(forward(k + ahead));
    actions.push_back(backward(walk.split ? Op::backward_input : Op::backward, k));
    if (walk.split && k >= walk.lag) actions.push_back(backward(Op::backward_weight, k - walk.lag));
  }
  for (std::size_t k = size - std::min(size, walk.lag); walk.split && k < size; ++k)
    actions.push_back(backward(Op::backward_weight, k));
  return actions;
}

}  // namespace

Schedule gpipe(const Layout& layout, bool forward_only) {
  Schedule schedule = empty_schedule(ScheduleKind::gpipe, layout, forward_only);
  const std::vector<Turn> turns = turns_of(1, layout.microbatches(), layout.microbatches());
  for (int rank = 0; rank < layout.pp(); ++rank) {
    std::vector<Action>& actions = schedule.ranks[static_cast<std::size_t>(rank)];
    actions.reserve(turns.size() * (forward_only ? 1 : 2));
    for (const Turn& turn : turns)
      actions.push_back(single(Op::forward, ChunkId(rank), turn.microbatch));
    if (forward_only) continue;
    for (const Turn& turn : turns)
      actions.push_back(single(Op::backward, ChunkId(rank), turn.microbatch));
  }
  return schedule;
}

Schedule one_f_one_b(const Layout& layout, bool forward_only) {
  Schedule schedule = empty_schedule(ScheduleKind::one_f_one_b, layout, forward_only);
  const std::vector<Turn> turns = turns_of(1, layout.microbatches(), layout.microbatches());
  for (int rank = 0; rank < layout.pp(); ++rank) {
    const Walk walk{.warm_up = layout.pp() - rank - 1};
    schedule.ranks[static_cast<std::size_t>(rank)] = one_rank(layout, RankId(rank), turns, walk, forward_only);
  }
  return schedule;
}

namespace {

Schedule interleaved_groups(const Layout& layout, int group, bool forward_only) {
  Schedule schedule = empty_schedule(ScheduleKind::interleaved, layout, forward_only);
  const std::vector<Turn> turns = turns_of(layout.vp(), layout.microbatches(), group);
  for (int rank = 0; rank < layout.pp(); ++rank) {
    const Walk walk{.warm_up = 2LL * (layout.pp() - rank - 1) + (layout.vp() - 1LL) * group};
    schedule.ranks[static_cast<std::size_t>(rank)] = one_rank(layout, RankId(rank), turns, walk, forward_only);
  }
  return schedule;
}

}  // namespace

Schedule interleaved(const Layout& layout, int group, bool forward_only) {
  require_group(ScheduleKind::interleaved, layout, group);
  if (layout.vp() > 1) return interleaved_groups(layout, group, forward_only);
  Schedule schedule = one_f_one_b(layout, forward_only);
  schedule.name = "interleaved";
  return schedule;
}

Schedule interleaved_torch(const Layout& layout, bool forward_only) {
  return interleaved_groups(layout, torch_group(layout), forward_only);
}

Schedule zb_h1(const Layout& layout, int group, bool forward_only) {
  require_group(ScheduleKind::zb_h1, layout, group);
  Schedule schedule = empty_schedule(ScheduleKind::zb_h1, layout, forward_only);
  const std::vector<Turn> turns = turns_of(layout.vp(), layout.microbatches(), group);
  for (int rank = 0; rank < layout.pp(); ++rank) {
    const Walk walk{.warm_up = layout.pp() - rank - 1 + (layout.vp() - 1LL) * group,
                    .split = true,
                    .lag = static_cast<std::size_t>(rank)};
    schedule.ranks[static_cast<std::size_t>(rank)] = one_rank(layout, RankId(rank), turns, walk, forward_only);
  }
  return schedule;
}

Schedule breadth_first(const Layout& layout, bool forward_only) {
  Schedule schedule = empty_schedule(ScheduleKind::looped_bfs, layout, forward_only);
  for (int rank = 0; rank < layout.pp(); ++rank) {
    std::vector<Action>& actions = schedule.ranks[static_cast<std::size_t>(rank)];
    const std::vector<ChunkId> chunks = layout.chunks_on(RankId(rank));
    actions.reserve(chunks.size() * static_cast<std::size_t>(layout.microbatches()) * (forward_only ? 1 : 2));
    for (const ChunkId chunk : chunks) {
      for (int m = 0; m < layout.microbatches(); ++m)
        actions.push_back(single(Op::forward, chunk, Microbatch(m)));
    }
    if (forward_only) continue;
    for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) {
      for (int m = layout.microbatches() - 1; m >= 0; --m) {
        actions.push_back(single(Op::backward, *chunk, Microbatch(m)));
      }
    }
  }
  return schedule;
}

}  // namespace plumb
