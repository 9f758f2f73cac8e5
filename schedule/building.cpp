// SPDX-License-Identifier: Apache-2.0
#include "building.hpp"

#include <utility>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

constexpr std::int64_t max_actions = std::int64_t{1} << 26;

}  // namespace

Schedule empty_schedule(std::string name, const Layout& layout, int ops, bool forward_only) {
  const std::int64_t per_microbatch = std::int64_t{forward_only ? 1 : ops} * layout.num_chunks();
  const std::int64_t actions = per_microbatch * layout.microbatches();
  if (actions > max_actions) {
    throw InputError(fmt::format("a schedule for P={} V={} M={} has {} actions: at most {} are possible, M <= {} here",
                                 layout.pp(), layout.vp(), layout.microbatches(), actions, max_actions,
                                 max_actions / per_microbatch));
  }
  Schedule schedule{std::move(name), layout, {}, forward_only};
  schedule.ranks.resize(static_cast<std::size_t>(layout.pp()));
  return schedule;
}

void require_single_chunk(std::string_view title, const Layout& layout, std::string_view instead) {
  if (layout.vp() == 1) return;
  throw InputError(
      fmt::format("{} runs one chunk on each rank: V is {}, it must be 1, or use {}", title, layout.vp(), instead));
}

void require_loop(std::string_view title, const Layout& layout) {
  if (layout.placement() == Placement::loop || layout.vp() == 1 || layout.pp() == 1) return;
  throw InputError(
      fmt::format("{} cannot run on placement vee with P={} V={}: a rank at a turn would wait for its own later chunk; "
                  "use placement loop, or V = 1",
                  title, layout.pp(), layout.vp()));
}

void require_vee_of_two(std::string_view title, const Layout& layout) {
  if (layout.vp() != 2) {
    throw InputError(fmt::format("{} runs exactly two chunks on each rank: V is {}, it must be 2", title, layout.vp()));
  }
  if (layout.placement() == Placement::vee || layout.pp() == 1) return;
  throw InputError(fmt::format("{} needs placement vee (rank r runs chunks r and 2P-1-r), not {}", title,
                               to_string(layout.placement())));
}

}  // namespace plumb
