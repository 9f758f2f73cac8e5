// SPDX-License-Identifier: Apache-2.0
#include "building.hpp"

#include <string>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "plumb/schedule/invariant.hpp"

namespace plumb {
namespace {

constexpr std::int64_t max_actions = std::int64_t{1} << 26;

void require_single_chunk(ScheduleKind kind, const Layout& layout) {
  if (layout.vp() == 1) return;
  throw InputError(fmt::format("{} runs one chunk on each rank: V is {}, it must be 1, or use {}", title_of(kind),
                               layout.vp(), kind == ScheduleKind::gpipe ? "looped-bfs" : "interleaved 1F1B"));
}

// A rank's chunks must follow each other round the ranks.
void require_loop(ScheduleKind kind, const Layout& layout) {
  if (layout.placement() == Placement::loop || layout.vp() == 1 || layout.pp() == 1) return;
  throw InputError(
      fmt::format("{} cannot run on placement vee with P={} V={}: a rank at a turn would wait for its own later chunk; "
                  "use placement loop, or V = 1",
                  title_of(kind), layout.pp(), layout.vp()));
}

// With one rank the placements are the same.
void require_vee_of_two(ScheduleKind kind, const Layout& layout) {
  if (layout.vp() != 2) {
    throw InputError(
        fmt::format("{} runs exactly two chunks on each rank: V is {}, it must be 2", title_of(kind), layout.vp()));
  }
  if (layout.placement() == Placement::vee || layout.pp() == 1) return;
  throw InputError(fmt::format("{} needs placement vee (rank r runs chunks r and 2P-1-r), not {}", title_of(kind),
                               to_string(layout.placement())));
}

void require_two_rounds(const Layout& layout) {
  if (layout.microbatches() >= 2 * layout.pp()) return;
  throw InputError(
      fmt::format("DualPipeV needs M >= 2P: M={} with P={}; the nearest M is {}, or use zb-v, which runs "
                  "any M on the same chunks",
                  layout.microbatches(), layout.pp(), 2 * layout.pp()));
}

// An upper bound: DualPipeV splits only some of its backwards.
int ops_of(ScheduleKind kind, bool forward_only) {
  if (forward_only) return 1;
  const bool splits = kind == ScheduleKind::zb_h1 || placement_of(kind) == Placement::vee;
  return splits ? 3 : 2;
}

void require_size(ScheduleKind kind, const Layout& layout, bool forward_only) {
  const std::int64_t per_microbatch = std::int64_t{ops_of(kind, forward_only)} * layout.num_chunks();
  const std::int64_t actions = per_microbatch * layout.microbatches();
  if (actions <= max_actions) return;
  throw InputError(fmt::format("a schedule for P={} V={} M={} has {} actions: at most {} are possible, M <= {} here",
                               layout.pp(), layout.vp(), layout.microbatches(), actions, max_actions,
                               max_actions / per_microbatch));
}

}  // namespace

std::string_view title_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::one_f_one_b:
      return "1F1B";
    case ScheduleKind::interleaved:
      return "interleaved 1F1B";
    case ScheduleKind::gpipe:
      return "GPipe";
    case ScheduleKind::looped_bfs:
      return "looped breadth-first";
    case ScheduleKind::zb_h1:
      return "ZB-H1";
    case ScheduleKind::zb_v:
      return "ZB-V";
    case ScheduleKind::dualpipe_v:
      return "DualPipeV";
    case ScheduleKind::v_half:
      return "V-Half";
    case ScheduleKind::v_min:
      return "V-Min";
  }
  broken_invariant(fmt::format("there is no schedule kind {}", static_cast<int>(kind)));
}

void require_layout(ScheduleKind kind, const Layout& layout, bool forward_only) {
  switch (kind) {
    case ScheduleKind::gpipe:
    case ScheduleKind::one_f_one_b:
      require_single_chunk(kind, layout);
      break;
    case ScheduleKind::interleaved:
    case ScheduleKind::zb_h1:
      require_loop(kind, layout);
      break;
    case ScheduleKind::looped_bfs:
      break;
    case ScheduleKind::zb_v:
    case ScheduleKind::v_half:
    case ScheduleKind::v_min:
      require_vee_of_two(kind, layout);
      break;
    case ScheduleKind::dualpipe_v:
      require_vee_of_two(kind, layout);
      require_two_rounds(layout);
      break;
  }
  require_size(kind, layout, forward_only);
}

Schedule empty_schedule(ScheduleKind kind, const Layout& layout, bool forward_only) {
  require_layout(kind, layout, forward_only);
  Schedule schedule{std::string(to_string(kind)), layout, {}, forward_only};
  schedule.ranks.resize(static_cast<std::size_t>(layout.pp()));
  return schedule;
}

}  // namespace plumb
