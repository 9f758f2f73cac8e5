// SPDX-License-Identifier: Apache-2.0
#include "verify_order.hpp"

#include <algorithm>
#include <limits>

namespace plumb {
namespace {

constexpr std::int32_t no_step = -1;
constexpr std::int32_t never = std::numeric_limits<std::int32_t>::max();

}  // namespace

RankOrder::RankOrder(const RankProgram& rank)
    : rank_(rank),
      position_(rank.comm.size(), 0),
      fifo_before_(rank.comm.size(), no_step),
      num_computes_(rank.comm.size(), 0),
      before_compute_(rank.comm.size(), never),
      visited_(rank.comm.size(), 0) {
  std::vector<std::int32_t> last_in_channel;
  std::int32_t position = 0;
  for (const StepRef& step : rank.order) {
    const std::int32_t here = position++;
    const auto index = static_cast<std::size_t>(step.index);
    if (!step.comm) {
      for (const Wait& wait : rank.waits_of(rank.compute[index].waits)) {
        if (wait.on == Wait::On::comm) mark_finished_before(wait.step, step.index);
      }
      continue;
    }
    const CommStep& comm = rank.comm[index];
    position_[index] = here;
    if (comm.kind == CommKind::send || comm.kind == CommKind::receive) {
      const std::size_t channel = comm.peer.index() * 4 + static_cast<std::size_t>(comm.lane) * 2 +
                                  static_cast<std::size_t>(comm.kind == CommKind::send);
      if (channel >= last_in_channel.size()) last_in_channel.resize(channel + 1, no_step);
      fifo_before_[index] = last_in_channel[channel];
      last_in_channel[channel] = step.index;
    }
    std::int32_t& finished = num_computes_[index];
    if (fifo_before_[index] != no_step) finished = num_computes_[static_cast<std::size_t>(fifo_before_[index])];
    for (const Wait& wait : rank.waits_of(comm.waits)) {
      finished = std::max(
          finished, wait.on == Wait::On::compute ? wait.step + 1 : num_computes_[static_cast<std::size_t>(wait.step)]);
    }
  }
}

// Computations come in ascending order, so the first that marks a step is the earliest; whatever led to a marked step
// has been marked with it.
void RankOrder::mark_finished_before(std::int32_t comm, std::int32_t compute) {
  stack_.clear();
  const auto finish = [&](std::int32_t step) {
    if (before_compute_[static_cast<std::size_t>(step)] != never) return;
    before_compute_[static_cast<std::size_t>(step)] = compute;
    stack_.push_back(step);
  };
  finish(comm);
  while (!stack_.empty()) {
    // This step has begun: so its waits are over, and those of the steps posted before it.
    std::int32_t begun = stack_.back();
    stack_.pop_back();
    for (; begun != no_step && visited_[static_cast<std::size_t>(begun)] == 0;
         begun = fifo_before_[static_cast<std::size_t>(begun)]) {
      visited_[static_cast<std::size_t>(begun)] = 1;  // begun before this or an earlier computation: done with
      for (const Wait& wait : rank_.waits_of(rank_.comm[static_cast<std::size_t>(begun)].waits)) {
        if (wait.on == Wait::On::comm) finish(wait.step);
      }
    }
  }
}

bool RankOrder::finished_before(StepRef first, StepRef second) {
  if (!second.comm) {
    return first.comm ? before_compute_[static_cast<std::size_t>(first.index)] <= second.index
                      : first.index < second.index;
  }
  const std::int32_t finished = num_computes_[static_cast<std::size_t>(second.index)];
  if (!first.comm) return first.index < finished;
  return before_compute_[static_cast<std::size_t>(first.index)] < finished || reaches(first.index, second.index);
}

// Is there a path of communication steps only?
bool RankOrder::reaches(std::int32_t finished, std::int32_t begun) {
  const std::int32_t lowest = position_[static_cast<std::size_t>(finished)];
  if (question_ < 2) question_ = 1;  // 1 is the mark of the construction
  ++question_;
  stack_.assign(1, begun);
  while (!stack_.empty()) {
    std::int32_t step = stack_.back();
    stack_.pop_back();
    for (; step != no_step && visited_[static_cast<std::size_t>(step)] != question_ &&
           position_[static_cast<std::size_t>(step)] > lowest;
         step = fifo_before_[static_cast<std::size_t>(step)]) {
      visited_[static_cast<std::size_t>(step)] = question_;
      for (const Wait& wait : rank_.waits_of(rank_.comm[static_cast<std::size_t>(step)].waits)) {
        if (wait.on != Wait::On::comm) continue;
        if (wait.step == finished) return true;
        stack_.push_back(wait.step);
      }
    }
  }
  return false;
}

}  // namespace plumb
