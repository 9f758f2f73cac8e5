// SPDX-License-Identifier: Apache-2.0
#include "programs.hpp"

#include <algorithm>
#include <sstream>

#include "plumb/schedule/generators.hpp"

namespace plumb::test {
namespace {

// Replaces every B by I, and runs the W up to three actions later.
void split_backwards(Schedule& schedule, Dice& dice) {
  for (std::vector<Action>& row : schedule.ranks) {
    std::vector<Action> split;
    std::vector<Compute> postponed;
    for (const Action& action : row) {
      split.push_back(action);
      if (action.first.op == Op::backward) {
        split.back().first.op = Op::backward_input;
        postponed.push_back({Op::backward_weight, action.first.chunk, action.first.microbatch});
      }
      while (postponed.size() > static_cast<std::size_t>(dice.roll(0, 3))) {
        split.push_back({postponed.front(), std::nullopt});
        postponed.erase(postponed.begin());
      }
    }
    for (const Compute& compute : postponed) {
      split.push_back({compute, std::nullopt});
    }
    row = std::move(split);
  }
}

Schedule interleaved_or_not(Dice& dice, int pp, int vp, int microbatches, bool forward_only) {
  const Layout layout(pp, vp, microbatches);
  if (vp == 1 && dice.roll(0, 1) == 0) return one_f_one_b(layout, forward_only);
  return interleaved(layout, default_group(layout), forward_only);
}

}  // namespace

Schedule random_schedule(Dice& dice, const Limits& limits) {
  const int pp = dice.roll(1, limits.pp);
  const int vp = dice.roll(1, limits.vp);
  int microbatches = dice.roll(1, limits.microbatches);
  const bool forward_only = dice.roll(0, 5) == 0;
  Schedule schedule = [&] {
    if (dice.roll(0, 2) == 0) {
      const Placement placement = dice.roll(0, 1) == 0 ? Placement::loop : Placement::vee;
      return breadth_first(Layout(pp, vp, microbatches, placement), forward_only);
    }
    // A group of P: every M below P, or a multiple of P.
    if (microbatches > pp) microbatches -= microbatches % pp;
    return interleaved_or_not(dice, pp, vp, microbatches, forward_only);
  }();
  if (dice.roll(0, 2) == 0) split_backwards(schedule, dice);
  return schedule;
}

Program random_program(Dice& dice, const Limits& limits) {
  const Schedule schedule = random_schedule(dice, limits);
  const int choice = dice.roll(0, 8);
  LowerOptions options;
  options.post_ahead = dice.roll(0, 3) == 0 ? dice.roll(0, 20) : dice.roll(0, 2);
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

std::string describe(const Program& program) {
  std::ostringstream text;
  text << program.schedule_name << " P=" << program.layout.pp() << " V=" << program.layout.vp()
       << " M=" << program.layout.microbatches() << ' ' << to_string(program.layout.placement()) << ' '
       << to_string(program.routing.policy) << " S=" << program.depth.block_sublayers() << " cuts";
  for (const int cut : program.depth.cuts()) {
    text << ' ' << cut;
  }
  text << " post-ahead " << program.post_ahead << (program.forward_only ? " forward only" : "");
  return text.str();
}

Program small_program(Policy policy, bool forward_only) {
  const Layout layout(4, 2, 8);
  const DepthMap depth(32, 6, DepthMap::even_cuts(32, 32, 8));
  return lower(interleaved(layout, 4, forward_only), depth, policy);
}

}  // namespace plumb::test
