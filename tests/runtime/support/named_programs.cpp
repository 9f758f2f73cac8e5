// SPDX-License-Identifier: Apache-2.0
#include "named_programs.hpp"

#include <stdexcept>

#include "support/refusals.hpp"

namespace plumb::test {

Schedule random_schedule_of(ScheduleKind kind, Dice& dice, const Limits& limits, bool train_only) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const Layout layout(dice.roll(1, limits.pp), dice.roll(1, limits.vp), dice.roll(1, limits.microbatches),
                        placement_of(kind));
    ScheduleRequest request;
    request.kind = kind;
    request.forward_only = !train_only && dice.roll(0, 7) == 0;
    if (takes_group(kind)) {
      request.group_rule = dice.roll(0, 2) == 0 ? GroupRule::torch : GroupRule::megatron;
      if (request.group_rule == GroupRule::megatron && dice.roll(0, 1) == 0) {
        request.group = dice.roll(1, layout.microbatches());
      }
    }
    if (auto schedule = if_legal([&] { return make_schedule(request, layout); })) return *std::move(schedule);
  }
  throw std::logic_error("no layout fits " + std::string(to_string(kind)));
}

Program random_program_of(ScheduleKind kind, Dice& dice, const Limits& limits, bool train_only) {
  const Schedule schedule = random_schedule_of(kind, dice, limits, train_only);
  const int choice = dice.roll(0, 8);
  LowerOptions options;
  options.post_ahead = dice.roll(0, 2);
  options.costs.value_unit = dice.roll(0, 4) * 50'000;
  options.costs.gradient_unit = dice.roll(0, 4) * 50'000;
  options.costs.latency = dice.roll(0, 1) * 300'000;
  const int chunks = schedule.layout.num_chunks();
  if (choice == 8) {
    const int sublayers = dice.roll(1, limits.sublayers);
    const DepthMap depth(sublayers, sublayers, random_cuts(dice, sublayers, chunks), Residual::standard);
    return lower(schedule, depth, Policy::standard, options);
  }
  return lower(schedule, random_depth(dice, chunks, limits.sublayers), block_policies[choice % 4], options);
}

Program regular_program_of(ScheduleKind kind, int num_ranks, Policy policy) {
  for (const int vp : {2, 1}) {
    const Layout layout(num_ranks, vp, 2 * num_ranks, placement_of(kind));
    const int sublayers = 3 * layout.num_chunks() + 1;
    const DepthMap depth(sublayers, 2, DepthMap::even_cuts(sublayers, sublayers, layout.num_chunks()));
    ScheduleRequest request;
    request.kind = kind;
    if (const auto schedule = if_legal([&] { return make_schedule(request, layout); }))
      return lower(*schedule, depth, policy);
  }
  throw std::logic_error("no regular layout fits " + std::string(to_string(kind)));
}

bool splits_backward(const Program& program) {
  for (const RankProgram& rank : program.ranks) {
    for (const ComputeStep& step : rank.compute) {
      if (step.compute.op == Op::backward_weight) return true;
    }
  }
  return false;
}

}  // namespace plumb::test
