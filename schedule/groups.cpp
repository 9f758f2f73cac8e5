// SPDX-License-Identifier: Apache-2.0
#include "groups.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "building.hpp"
#include "limits.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/generators.hpp"

namespace plumb {
namespace {

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

int num_torch_groups(int pp, int microbatches) { return std::max(1, microbatches / pp); }

bool torch_groups_are_equal(int pp, int microbatches) { return microbatches % num_torch_groups(pp, microbatches) == 0; }

}  // namespace

std::vector<Turn> turns_of(int vp, int microbatches, int group) {
  std::vector<Turn> turns;
  turns.reserve(static_cast<std::size_t>(vp) * static_cast<std::size_t>(microbatches));
  for (int begin = 0; begin < microbatches;) {
    const int end = begin + std::min(group, microbatches - begin);
    for (int stage = 0; stage < vp; ++stage) {
      for (int m = begin; m < end; ++m)
        turns.push_back({VirtualStage(stage), Microbatch(m)});
    }
    begin = end;
  }
  return turns;
}

void require_group(ScheduleKind kind, const Layout& layout, int group) {
  const int pp = layout.pp();
  const int microbatches = layout.microbatches();
  if (group >= 1 && (layout.vp() == 1 || legal_group(pp, microbatches, group))) return;
  const std::string rule = microbatches < pp ? "with M < P the only group is M"
                                             : "it needs P <= group <= M and M mod group either 0 or at least P";
  std::string nearest =
      fmt::format("for M={} the nearest group is {}", microbatches, nearest_groups(pp, microbatches, group));
  // No layout has more microbatches, so no larger group can be made legal.
  if (group >= 1 && group <= max_microbatches) {
    nearest += fmt::format("; for group {} the nearest M is {}", group, nearest_microbatches(pp, microbatches, group));
  }
  throw InputError(fmt::format("{} with P={}, M={} cannot use group {}: {}; {}", title_of(kind), pp, microbatches,
                               group, rule, nearest));
}

int default_group(const Layout& layout) { return std::min(layout.pp(), layout.microbatches()); }

int torch_group(const Layout& layout) {
  const int pp = layout.pp();
  const int microbatches = layout.microbatches();
  const int groups = num_torch_groups(pp, microbatches);
  if (torch_groups_are_equal(pp, microbatches)) return microbatches / groups;
  int below = microbatches - 1;
  while (!torch_groups_are_equal(pp, below))
    --below;  // ends at a multiple of P
  int above = microbatches + 1;
  while (!torch_groups_are_equal(pp, above))
    ++above;
  throw InputError(
      fmt::format("torch's rule deals M={} microbatches over P={} ranks to {} equal groups (max(1, M / P), rounded "
                  "down), which does not divide it; the nearest M is {} or {}",
                  microbatches, pp, groups, below, above));
}

}  // namespace plumb
