// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/lower.hpp"

#include <fmt/format.h>

#include "lower_slots.hpp"
#include "lower_steps.hpp"
#include "plumb/schedule/check.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb {

Program lower(const Schedule& schedule, const DepthMap& depth, Policy policy, const LowerOptions& options) {
  constexpr int most_ahead = 64;
  if (options.post_ahead < 0 || options.post_ahead > most_ahead) {
    throw InputError(fmt::format("post-ahead {} is out of range: legal are 0 to {}", options.post_ahead, most_ahead));
  }
  require_legal(schedule);
  Program program{.layout = schedule.layout,
                  .depth = depth,
                  .routing = make_routing(schedule.layout, depth, policy),
                  .schedule_name = schedule.name,
                  .forward_only = schedule.forward_only,
                  .post_ahead = options.post_ahead,
                  .messages = {},
                  .ranks = {}};
  Plan plan = plan_order(schedule, program.routing, options.costs);
  Steps steps = make_steps(schedule, program.routing, plan);
  program.messages = std::move(plan.messages);
  const std::vector<ChunkShape> shapes = chunk_shapes(program);
  for (RankId rank{0}; rank.value < program.layout.pp(); rank = rank.next()) {
    assign_slots(program, shapes, rank, steps);
  }
  program.ranks = std::move(steps.ranks);
  return program;
}

}  // namespace plumb
