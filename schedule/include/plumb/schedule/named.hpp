// SPDX-License-Identifier: Apache-2.0
//
// named.hpp: the schedules by name: which exist, where they run, and one function that makes any of them.
//
// The names are the command line's (`--schedule zb-v`). The orders themselves are in generators.hpp; `auto`, which
// needs costs, is not here. Pure functions over plain values; safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "plumb/schedule/schedule.hpp"

namespace plumb {

enum class ScheduleKind : std::uint8_t {
  one_f_one_b,
  interleaved,
  gpipe,
  looped_bfs,
  zb_h1,
  zb_v,
  dualpipe_v,
  v_half,
  v_min
};

// All of them, in the order above.
std::span<const ScheduleKind> all_schedule_kinds();

// "1f1b", "interleaved", "gpipe", "looped-bfs", "zb-h1", "zb-v", "dualpipe-v", "v-half", "v-min".
std::string_view to_string(ScheduleKind kind);

// Throws InputError naming all of them.
ScheduleKind parse_schedule_kind(std::string_view text);

// 1f1b if V = 1, else interleaved.
ScheduleKind default_schedule(int vp);

// The placement a schedule belongs to: vee for zb-v, dualpipe-v, v-half and v-min, loop for the others.
Placement placement_of(ScheduleKind kind);

// How interleaved 1F1B and ZB-H1 deal microbatches into groups: `megatron` groups of N with a shorter last one, `torch`
// max(1, M / P) equal groups.
enum class GroupRule : std::uint8_t { megatron, torch };

std::string_view to_string(GroupRule rule);
GroupRule parse_group_rule(std::string_view text);

struct ScheduleRequest {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  std::optional<int> group = std::nullopt;  // default: generators.hpp, default_group; only for rule megatron
  GroupRule group_rule = GroupRule::megatron;
  bool forward_only = false;
};

// Whether the kind takes a group at all (interleaved and zb-h1).
bool takes_group(ScheduleKind kind);

// Throws InputError with the rule and the nearest legal values when the layout does not fit the kind, or when a group
// or a group rule is given to a kind that takes none.
void require_fit(const ScheduleRequest& request, const Layout& layout);

// Throws as require_fit().
Schedule make_schedule(const ScheduleRequest& request, const Layout& layout);

}  // namespace plumb
