// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/lower.hpp"

#include <fmt/format.h>

#include "lower_rank.hpp"
#include "parallel.hpp"
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
  const std::size_t num_ranks = schedule.ranks.size();
  const std::size_t num_threads = threads_worth_it(plan.messages.size(), num_ranks, options.num_threads);
  std::vector<LowerMemory> memories(num_threads);
  std::vector<RankProgram> ranks(num_ranks);
  for_each_in_parallel(num_ranks, num_threads, [&](std::size_t rank, std::size_t worker) {
    ranks[rank] = lower_rank(program, schedule.ranks[rank], plan, RankId(rank), options.costs, memories[worker]);
    std::vector<PlanRecord::Start>().swap(plan.order[rank]);
    std::vector<PlannedTimes>().swap(plan.computes[rank]);
  });
  program.ranks = std::move(ranks);
  program.messages = std::move(plan.messages);
  return program;
}

}  // namespace plumb
