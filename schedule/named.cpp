// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/named.hpp"

#include <array>

#include <fmt/format.h>

#include "building.hpp"
#include "groups.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/schedule/invariant.hpp"

namespace plumb {
namespace {

struct Named {
  ScheduleKind kind;
  std::string_view name;
  Placement placement;
};

constexpr std::array kinds = {ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::gpipe,
                              ScheduleKind::looped_bfs,  ScheduleKind::zb_h1,       ScheduleKind::zb_v,
                              ScheduleKind::dualpipe_v,  ScheduleKind::v_half,      ScheduleKind::v_min};

constexpr std::array named = {
    Named{ScheduleKind::one_f_one_b, "1f1b", Placement::loop},
    Named{ScheduleKind::interleaved, "interleaved", Placement::loop},
    Named{ScheduleKind::gpipe, "gpipe", Placement::loop},
    Named{ScheduleKind::looped_bfs, "looped-bfs", Placement::loop},
    Named{ScheduleKind::zb_h1, "zb-h1", Placement::loop},
    Named{ScheduleKind::zb_v, "zb-v", Placement::vee},
    Named{ScheduleKind::dualpipe_v, "dualpipe-v", Placement::vee},
    Named{ScheduleKind::v_half, "v-half", Placement::vee},
    Named{ScheduleKind::v_min, "v-min", Placement::vee},
};

}  // namespace

std::span<const ScheduleKind> all_schedule_kinds() { return kinds; }

std::string_view to_string(ScheduleKind kind) { return named[static_cast<std::size_t>(kind)].name; }

ScheduleKind parse_schedule_kind(std::string_view text) {
  std::string names;
  for (const Named& entry : named) {
    if (text == entry.name) return entry.kind;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  }
  throw InputError(fmt::format("schedule '{}' is unknown, legal are {}", text, names));
}

ScheduleKind default_schedule(int vp) { return vp == 1 ? ScheduleKind::one_f_one_b : ScheduleKind::interleaved; }

Placement placement_of(ScheduleKind kind) { return named[static_cast<std::size_t>(kind)].placement; }

std::string_view to_string(GroupRule rule) { return rule == GroupRule::megatron ? "megatron" : "torch"; }

GroupRule parse_group_rule(std::string_view text) {
  if (text == "megatron") return GroupRule::megatron;
  if (text == "torch") return GroupRule::torch;
  throw InputError(fmt::format("group rule '{}' is unknown, legal are megatron and torch", text));
}

bool takes_group(ScheduleKind kind) { return kind == ScheduleKind::interleaved || kind == ScheduleKind::zb_h1; }

namespace {

// A group is only for those that deal microbatches in groups: one that would be ignored is refused.
void require_known_group(const ScheduleRequest& request) {
  if (!takes_group(request.kind)) {
    if (!request.group && request.group_rule == GroupRule::megatron) return;
    throw InputError(fmt::format("schedule '{}' takes no group and no group rule, only {} and {} do",
                                 to_string(request.kind), to_string(ScheduleKind::interleaved),
                                 to_string(ScheduleKind::zb_h1)));
  }
  if (request.group && request.group_rule == GroupRule::torch) {
    throw InputError(
        fmt::format("group {} cannot be chosen with torch's rule, which makes max(1, M / P) equal groups; "
                    "leave it out or use rule megatron",
                    *request.group));
  }
}

}  // namespace

void require_fit(const ScheduleRequest& request, const Layout& layout) {
  require_known_group(request);
  if (takes_group(request.kind)) {
    if (request.group_rule == GroupRule::torch) {
      (void)torch_group(layout);
    } else {
      require_group(request.kind, layout, request.group.value_or(default_group(layout)));
    }
  }
  require_layout(request.kind, layout, request.forward_only);
}

Schedule make_schedule(const ScheduleRequest& request, const Layout& layout) {
  require_known_group(request);
  const bool by_torch = request.group_rule == GroupRule::torch;
  const int group = request.group.value_or(default_group(layout));
  const bool forward_only = request.forward_only;
  switch (request.kind) {
    case ScheduleKind::one_f_one_b:
      return one_f_one_b(layout, forward_only);
    case ScheduleKind::interleaved:
      return by_torch ? interleaved_torch(layout, forward_only) : interleaved(layout, group, forward_only);
    case ScheduleKind::gpipe:
      return gpipe(layout, forward_only);
    case ScheduleKind::looped_bfs:
      return breadth_first(layout, forward_only);
    case ScheduleKind::zb_h1:
      return zb_h1(layout, by_torch ? torch_group(layout) : group, forward_only);
    case ScheduleKind::zb_v:
      return zb_v(layout, forward_only);
    case ScheduleKind::dualpipe_v:
      return dualpipe_v(layout, forward_only);
    case ScheduleKind::v_half:
      return v_half(layout, forward_only);
    case ScheduleKind::v_min:
      return v_min(layout, forward_only);
  }
  broken_invariant(fmt::format("there is no schedule kind {}", static_cast<int>(request.kind)));
}

}  // namespace plumb
