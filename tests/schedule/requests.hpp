// SPDX-License-Identifier: Apache-2.0
//
// requests.hpp: all small schedules that can be asked for by name.
#pragma once

#include <functional>

#include "plumb/schedule/error.hpp"
#include "plumb/schedule/named.hpp"

namespace plumb::test {

struct RequestRange {
  int max_pp = 8;
  int max_vp = 4;
  bool forward_only = false;
};

// Calls `visit(request, layout)` for every kind, P <= max_pp, every V <= max_vp, M <= 3P + 1 and group that is legal,
// each on the placement the kind belongs to, and for torch's groups. Returns how many there were.
inline std::size_t for_each_request(const RequestRange& range,
                                    const std::function<void(const ScheduleRequest&, const Layout&)>& visit) {
  std::size_t num = 0;
  const auto try_one = [&](const ScheduleRequest& request, const Layout& layout) {
    try {
      require_fit(request, layout);
    } catch (const InputError&) {
      return;
    }
    visit(request, layout);
    ++num;
  };
  for (const ScheduleKind kind : all_schedule_kinds()) {
    for (int pp = 1; pp <= range.max_pp; ++pp) {
      for (int vp = 1; vp <= range.max_vp; ++vp) {
        for (int m = 1; m <= 3 * pp + 1; ++m) {
          const Layout layout(pp, vp, m, placement_of(kind));
          ScheduleRequest request{.kind = kind, .forward_only = range.forward_only};
          if (!takes_group(kind)) {
            try_one(request, layout);
            continue;
          }
          for (int group = 1; group <= m; ++group) {
            request.group = group;
            try_one(request, layout);
          }
          request.group.reset();
          request.group_rule = GroupRule::torch;
          try_one(request, layout);
        }
      }
    }
  }
  return num;
}

}  // namespace plumb::test
