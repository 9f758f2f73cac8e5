// SPDX-License-Identifier: Apache-2.0
#include "plan_record.hpp"

namespace plumb {

PlanRecord::PlanRecord(const Schedule& schedule, const Routing& routing)
    : order(schedule.ranks.size()), computes(schedule.ranks.size()) {
  const auto microbatches = static_cast<std::size_t>(schedule.layout.microbatches());
  const std::size_t directions = schedule.forward_only ? 1 : 2;
  std::vector<std::size_t> num_ends(order.size(), 0);
  for (const Transfer& transfer : routing.transfers) {
    ends_.push_back({transfer.from, transfer.to});
    ++num_ends[transfer.from.index()];
    ++num_ends[transfer.to.index()];
  }
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    std::size_t num_computes = 0;
    for (const Action& action : schedule.ranks[rank])
      num_computes += action.second ? 2U : 1U;
    computes[rank].reserve(num_computes);
    order[rank].reserve(num_computes + num_ends[rank] * microbatches * directions);
  }
  messages.reserve(routing.transfers.size() * microbatches * directions);
}

PlanRecord::Lengths PlanRecord::lengths() const {
  Lengths now{.messages = messages.size(), .order = {}, .computes = {}};
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    now.order.push_back(order[rank].size());
    now.computes.push_back(computes[rank].size());
  }
  return now;
}

void PlanRecord::mark() { mark_ = lengths(); }

void PlanRecord::repeat(std::size_t times, std::int64_t duration, int microbatches) {
  const Lengths now = lengths();
  // Each copy is made from the one before it.
  const auto extend = [times](auto& list, std::size_t period, auto&& later) {
    for (std::size_t left = times * period; left > 0; --left)
      list.push_back(later(list[list.size() - period]));
  };
  const auto after = [&](Microbatch microbatch) { return Microbatch(microbatch.value + microbatches); };
  const auto num_messages = static_cast<std::int32_t>(now.messages - mark_.messages);
  Repetition& told = repetitions.emplace_back();
  told = {.times = times, .duration = duration, .microbatches = microbatches, .messages = num_messages, .ranks = {}};
  for (std::size_t rank = 0; rank < order.size(); ++rank)
    told.ranks.push_back({mark_.order[rank], now.order[rank] - mark_.order[rank]});
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    extend(computes[rank], now.computes[rank] - mark_.computes[rank], [&](PlannedTimes planned) {
      return PlannedTimes{planned.start + duration, planned.end + duration};
    });
  }
  extend(messages, now.messages - mark_.messages, [&](Message message) {
    return Message{message.transfer, after(message.microbatch), message.direction};
  });
}

}  // namespace plumb
