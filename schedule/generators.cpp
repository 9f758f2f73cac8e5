// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/generators.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

// 2^26 actions are 1.8 GiB; a layout may be larger than that (its traffic can still be counted), a table of it may not.
constexpr std::int64_t max_actions = std::int64_t{1} << 26;

// No layout has more microbatches, so no larger group can be made legal.
constexpr int max_group = 1 << 20;

void require_size(const Layout& layout) {
  const std::int64_t actions = 2LL * layout.num_chunks() * layout.microbatches();
  if (actions > max_actions) {
    throw InputError(fmt::format("a schedule for P={} V={} M={} has {} actions: at most {} are possible, M <= {} here",
                                 layout.pp(), layout.vp(), layout.microbatches(), actions, max_actions,
                                 max_actions / (2LL * layout.num_chunks())));
  }
}

Schedule empty_schedule(std::string name, const Layout& layout, bool forward_only) {
  require_size(layout);
  Schedule schedule{std::move(name), layout, {}, forward_only};
  schedule.ranks.resize(static_cast<std::size_t>(layout.pp()));
  return schedule;
}

Action single(Op op, ChunkId chunk, Microbatch microbatch) { return {{op, chunk, microbatch}, std::nullopt}; }

// The k-th entry of the interleaved order: groups of microbatches, within a group every virtual stage in turn.
struct Turn {
  VirtualStage stage;
  Microbatch microbatch;
};

std::vector<Turn> turns_of(int vp, int microbatches, int group) {
  std::vector<Turn> turns;
  turns.reserve(static_cast<std::size_t>(vp) * static_cast<std::size_t>(microbatches));
  for (int begin = 0; begin < microbatches; begin += group) {
    const int end = std::min(begin + group, microbatches);
    for (int stage = 0; stage < vp; ++stage) {
      for (int m = begin; m < end; ++m)
        turns.push_back({VirtualStage(stage), Microbatch(m)});
    }
  }
  return turns;
}

// Warm-up forwards, then pairs (F, B), then the remaining B. The backward takes the same turns from the deepest stage
// up.
std::vector<Action> one_rank(const Layout& layout, RankId rank, const std::vector<Turn>& turns, std::size_t warm_up,
                             bool forward_only) {
  const auto forward = [&](std::size_t k) {
    return single(Op::forward, layout.chunk_of(rank, turns[k].stage), turns[k].microbatch);
  };
  const auto backward = [&](std::size_t k) {
    const VirtualStage stage(layout.vp() - 1 - turns[k].stage.value);
    return single(Op::backward, layout.chunk_of(rank, stage), turns[k].microbatch);
  };
  std::vector<Action> actions;
  actions.reserve(forward_only ? turns.size() : 2 * turns.size());
  const std::size_t ahead = forward_only ? turns.size() : std::min(warm_up, turns.size());
  for (std::size_t k = 0; k < ahead; ++k)
    actions.push_back(forward(k));
  if (forward_only) return actions;
  for (std::size_t k = 0; k < turns.size(); ++k) {
    if (k + ahead < turns.size()) actions.push_back(forward(k + ahead));
    actions.push_back(backward(k));
  }
  return actions;
}

bool legal_group(int pp, int microbatches, int group) {
  if (microbatches < pp) return group == microbatches;
  return pp <= group && group <= microbatches && (microbatches % group == 0 || microbatches % group >= pp);
}

std::string either(int below, int above) {
  if (below == 0) return fmt::format("{}", above);
  return above == 0 ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

// The legal groups next to the one asked for.
std::string nearest_groups(int pp, int microbatches, int group) {
  int below = std::clamp(group, 1, microbatches + 1) - 1;
  while (below >= 1 && !legal_group(pp, microbatches, below))
    --below;
  int above = std::clamp(group, 0, microbatches) + 1;
  while (above <= microbatches && !legal_group(pp, microbatches, above))
    ++above;
  return either(below, above <= microbatches ? above : 0);
}

// The numbers of microbatches next to the given one for which the group is legal. REQUIRES 1 <= group <= 2^20.
std::string nearest_microbatches(int pp, int microbatches, int group) {
  if (group < pp) return fmt::format("{}", group);  // only as a single clamped group
  int below = microbatches - 1;
  while (below >= group && !legal_group(pp, below, group))
    --below;
  int above = std::max(microbatches + 1, group);
  while (!legal_group(pp, above, group))
    ++above;  // ends at a multiple of the group
  return either(below >= group ? below : 0, above);
}

void require_group(const Layout& layout, int group) {
  const int pp = layout.pp();
  const int microbatches = layout.microbatches();
  if (group >= 1 && (layout.vp() == 1 || legal_group(pp, microbatches, group))) return;
  const std::string rule = microbatches < pp ? "with M < P the only group is M"
                                             : "it needs P <= group <= M and M mod group either 0 or at least P";
  std::string nearest =
      fmt::format("for M={} the nearest group is {}", microbatches, nearest_groups(pp, microbatches, group));
  if (group >= 1 && group <= max_group) {
    nearest += fmt::format("; for group {} the nearest M is {}", group, nearest_microbatches(pp, microbatches, group));
  }
  throw InputError(fmt::format("interleaved 1F1B with P={}, M={} cannot use group {}: {}; {}", pp, microbatches, group,
                               rule, nearest));
}

}  // namespace

Schedule one_f_one_b(const Layout& layout, bool forward_only) {
  if (layout.vp() != 1) {
    throw InputError(
        fmt::format("1F1B runs one chunk on each rank: V is {}, it must be 1, or use interleaved 1F1B", layout.vp()));
  }
  Schedule schedule = empty_schedule("1f1b", layout, forward_only);
  const std::vector<Turn> turns = turns_of(1, layout.microbatches(), layout.microbatches());
  for (int rank = 0; rank < layout.pp(); ++rank) {
    const auto warm_up = static_cast<std::size_t>(layout.pp() - rank - 1);
    schedule.ranks[static_cast<std::size_t>(rank)] = one_rank(layout, RankId(rank), turns, warm_up, forward_only);
  }
  return schedule;
}

Schedule interleaved(const Layout& layout, int group, bool forward_only) {
  require_group(layout, group);
  if (layout.vp() == 1) {
    Schedule schedule = one_f_one_b(layout, forward_only);
    schedule.name = "interleaved";
    return schedule;
  }
  if (layout.placement() == Placement::vee && layout.pp() > 1) {
    throw InputError(
        fmt::format("interleaved 1F1B cannot run on placement vee with P={} V={}: a rank at a turn would wait "
                    "for its own later chunk; use placement loop, or V = 1",
                    layout.pp(), layout.vp()));
  }
  Schedule schedule = empty_schedule("interleaved", layout, forward_only);
  const std::vector<Turn> turns = turns_of(layout.vp(), layout.microbatches(), group);
  for (int rank = 0; rank < layout.pp(); ++rank) {
    const std::int64_t warm_up = 2LL * (layout.pp() - rank - 1) + (layout.vp() - 1LL) * group;
    schedule.ranks[static_cast<std::size_t>(rank)] =
        one_rank(layout, RankId(rank), turns, static_cast<std::size_t>(warm_up), forward_only);
  }
  return schedule;
}

Schedule breadth_first(const Layout& layout, bool forward_only) {
  Schedule schedule = empty_schedule("breadth-first", layout, forward_only);
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

int default_group(const Layout& layout) { return std::min(layout.pp(), layout.microbatches()); }

}  // namespace plumb
