// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/lower.hpp"

#include <fmt/format.h>

#include "lower_rank.hpp"
#include "planner_run.hpp"
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
  PlanRecord plan(schedule, program.routing);
  PlannerRun<PlanRecord>(schedule, program.routing, options.costs, plan).run();
  program.ranks.reserve(schedule.ranks.size());
  for (RankId rank; rank.value < program.layout.pp(); rank = rank.next()) {
    program.ranks.push_back(lower_rank(program, schedule.ranks[rank.index()], plan, rank, options.costs));
    std::vector<PlanRecord::Start>().swap(plan.order[rank.index()]);
    std::vector<PlannedTimes>().swap(plan.computes[rank.index()]);
  }
  program.messages = std::move(plan.messages);
  return program;
}

}  // namespace plumb
