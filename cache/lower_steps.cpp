// SPDX-License-Identifier: Apache-2.0
#include "lower_steps.hpp"

#include <algorithm>

namespace plumb {

Steps::Steps(const Layout& layout, const Routing& routing)
    : ranks(static_cast<std::size_t>(layout.pp())),
      times(ranks.size()),
      forward(static_cast<std::size_t>(layout.num_chunks()), layout.microbatches()),
      backward(forward),
      send_forward(routing.transfers.size(), layout.microbatches()),
      receive_forward(send_forward),
      send_backward(send_forward),
      receive_backward(send_forward),
      last_add(routing.holdings.size(), layout.microbatches()),
      zero(last_add) {}

namespace {

class StepMaker {
 public:
  StepMaker(const Schedule& schedule, const Routing& routing, const Plan& plan)
      : routing_(routing),
        plan_(plan),
        steps_(schedule.layout, routing),
        added_(routing.holdings.size(), schedule.layout.microbatches()),
        completed_by_(static_cast<std::size_t>(schedule.layout.num_chunks())) {
    for (std::size_t rank = 0; rank < steps_.ranks.size(); ++rank) {
      for (const Action& action : schedule.ranks[rank]) {
        steps_.ranks[rank].compute.push_back({action.first, action.second.has_value(), {}, {}, {}});
        if (action.second) {
          steps_.ranks[rank].compute.push_back({*action.second, false, {}, {}, {}});
        }
      }
    }
    for (std::size_t rank = 0; rank < steps_.ranks.size(); ++rank) {
      steps_.times[rank].compute.resize(steps_.ranks[rank].compute.size());
    }
    for (std::size_t h = 0; h < routing.holdings.size(); ++h) {
      const Holding& holding = routing.holdings[h];
      if (!holding.readers.empty() && !holding.children.empty()) {
        completed_by_[holding.readers.front().index()].push_back(HoldingId(h));
      }
    }
  }

  Steps make() {
    for (const PlannedStart& start : plan_.starts) {
      if (start.is_message) {
        place_message(start);
      } else {
        place_compute(start);
      }
    }
    return std::move(steps_);
  }

 private:
  void place_compute(const PlannedStart& start) {
    const RankId rank = start.rank;
    const std::int32_t index = start.index;
    RankProgram& program = steps_.ranks[rank.index()];
    steps_.times[rank.index()].compute[static_cast<std::size_t>(index)] = {start.start, start.end};
    const Compute compute = program.compute[static_cast<std::size_t>(index)].compute;
    program.order.push_back({.comm = false, .index = index});
    if (compute.op == Op::forward) {
      steps_.forward.at(compute.chunk.index(), compute.microbatch) = index;
    } else if (compute.op != Op::backward_weight) {
      steps_.backward.at(compute.chunk.index(), compute.microbatch) = index;
      for (const HoldingId holding : completed_by_[compute.chunk.index()]) {
        place_possible_adds(holding, compute.microbatch);
      }
    }
  }

  void place_message(const PlannedStart& start) {
    const MessageId id(start.index);
    const PlannedTimes sent{start.start, start.end};
    const PlannedTimes arrived{start.start, start.arrival};
    const Message& message = plan_.messages[id.index()];
    const Transfer& transfer = routing_.transfers[message.transfer.index()];
    const std::size_t t = message.transfer.index();
    if (message.direction == Direction::forward) {
      steps_.send_forward.at(t, message.microbatch) = place(
          transfer.from, {.kind = CommKind::send, .lane = transfer.lane, .peer = transfer.to, .message = id}, sent);
      steps_.receive_forward.at(t, message.microbatch) =
          place(transfer.to, {.kind = CommKind::receive, .lane = transfer.lane, .peer = transfer.from, .message = id},
                arrived);
      return;
    }
    for (const HoldingId holding : transfer.holdings) {
      if (routing_.holdings[holding.index()].num_contributions() == 0) {
        steps_.zero.at(holding.index(), message.microbatch) =
            place(transfer.to, {.kind = CommKind::zero, .message = id, .holding = holding}, {start.start, start.start});
      }
    }
    steps_.send_backward.at(t, message.microbatch) =
        place(transfer.to, {.kind = CommKind::send, .lane = transfer.lane, .peer = transfer.from, .message = id}, sent);
    steps_.receive_backward.at(t, message.microbatch) = place(
        transfer.from, {.kind = CommKind::receive, .lane = transfer.lane, .peer = transfer.to, .message = id}, arrived);
    for (const HoldingId holding : transfer.holdings) {
      place_possible_adds(routing_.holdings[holding.index()].parent, message.microbatch);
    }
  }

  // Own contributions first, then the children's in their order; stops at the first that is not there yet.
  void place_possible_adds(HoldingId id, Microbatch microbatch) {
    const Holding& holding = routing_.holdings[id.index()];
    if (!holding.readers.empty() && steps_.backward.at(holding.readers.front().index(), microbatch) < 0) {
      return;
    }
    std::int32_t& next = added_.at(id.index(), microbatch);
    next = next < 0 ? 0 : next;
    while (static_cast<std::size_t>(next) < holding.children.size()) {
      const HoldingId child = holding.children[static_cast<std::size_t>(next)];
      const std::size_t transfer = routing_.holdings[child.index()].transfer.index();
      const std::int32_t receive = steps_.receive_backward.at(transfer, microbatch);
      if (receive < 0) {
        return;
      }
      const MessageId message = steps_.ranks[holding.rank.index()].comm[static_cast<std::size_t>(receive)].message;
      std::int32_t& last_add = steps_.last_add.at(id.index(), microbatch);
      const RankTimes& times = steps_.times[holding.rank.index()];
      std::int64_t at = times.end_of({Wait::On::comm, receive});
      if (last_add >= 0) {
        at = std::max(at, times.end_of({Wait::On::comm, last_add}));
      } else if (!holding.readers.empty()) {
        const std::int32_t own = steps_.backward.at(holding.readers.front().index(), microbatch);
        at = std::max(at, times.end_of({Wait::On::compute, own}));
      }
      last_add = place(holding.rank, {.kind = CommKind::add, .message = message, .holding = child}, {at, at});
      ++next;
    }
  }

  std::int32_t place(RankId rank, const CommStep& step, PlannedTimes times) {
    RankProgram& program = steps_.ranks[rank.index()];
    const auto index = static_cast<std::int32_t>(program.comm.size());
    program.comm.push_back(step);
    steps_.times[rank.index()].comm.push_back(times);
    program.order.push_back({.comm = true, .index = index});
    return index;
  }

  const Routing& routing_;
  const Plan& plan_;
  Steps steps_;
  StepTable added_;                                   // [holding]: children already added
  std::vector<std::vector<HoldingId>> completed_by_;  // [chunk]: holdings whose own contributions end with its backward
};

}  // namespace

Steps make_steps(const Schedule& schedule, const Routing& routing, const Plan& plan) {
  return StepMaker(schedule, routing, plan).make();
}

}  // namespace plumb
