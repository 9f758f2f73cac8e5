// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/planner.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>

#include <fmt/format.h>

#include "plumb/cache/arbiter.hpp"
#include "plumb/schedule/invariant.hpp"

namespace plumb {

namespace {

enum class EventKind : std::uint8_t { computed, left_wire, arrived };

struct Event {
  std::int64_t time = 0;
  std::int64_t sequence = 0;  // ties in the order in which they were scheduled
  EventKind kind = EventKind::computed;
  std::int32_t subject = 0;  // rank, or message number
  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : sequence > other.sequence;
  }
};

// Transfers in the order of the rank that receives, and each one's place in it.
struct TransferOrder {
  std::vector<TransferId> transfers;
  std::vector<std::int32_t> place;
};

TransferOrder order_by(const Routing& routing, RankId Transfer::*receiver) {
  TransferOrder order;
  for (std::size_t t = 0; t < routing.transfers.size(); ++t) {
    order.transfers.push_back(TransferId(t));
  }
  std::stable_sort(order.transfers.begin(), order.transfers.end(), [&](TransferId a, TransferId b) {
    return routing.transfers[a.index()].*receiver < routing.transfers[b.index()].*receiver;
  });
  order.place.resize(order.transfers.size());
  for (std::size_t i = 0; i < order.transfers.size(); ++i) {
    order.place[order.transfers[i].index()] = static_cast<std::int32_t>(i);
  }
  return order;
}

bool is_backward(Op op) { return op == Op::backward || op == Op::backward_input; }

// Messages have numbers before the common order exists, and the numbers break ties between messages that became ready
// at the same moment: earlier microbatches first, forward before backward, then by receiving rank and transfer, so that
// a rank which closes a block serves the others in turn.
class Planner {
 public:
  Planner(const Schedule& schedule, const Routing& routing, const PlanCosts& costs)
      : routing_(routing),
        costs_(costs),
        num_microbatches_(schedule.layout.microbatches()),
        rows_(static_cast<std::size_t>(schedule.layout.pp())),
        arbiter_(schedule.layout.pp()) {
    for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
      for (const Action& action : schedule.ranks[rank]) {
        rows_[rank].push_back(action.first);
        if (action.second) {
          rows_[rank].push_back(*action.second);
        }
      }
    }
    by_receiver_ = {order_by(routing, &Transfer::to), order_by(routing, &Transfer::from)};
    next_.resize(rows_.size());
    busy_.resize(rows_.size());
    count_dependencies(schedule.layout.num_chunks());
  }

  Plan run() {
    for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
      start_compute(rank);
    }
    while (!events_.empty()) {
      now_ = events_.top().time;
      while (!events_.empty() && events_.top().time == now_) {
        const Event event = events_.top();
        events_.pop();
        handle(event);
      }
      start_messages();
    }
    for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
      require(next_[rank] == rows_[rank].size(), [&] {
        return fmt::format("planner: rank {} is stuck at {}", rank, to_string(rows_[rank][next_[rank]]));
      });
    }
    plan_.makespan = now_;
    return std::move(plan_);
  }

 private:
  std::size_t per_chunk(ChunkId chunk, Microbatch microbatch) const {
    return chunk.index() * static_cast<std::size_t>(num_microbatches_) + microbatch.index();
  }

  std::int32_t number_of(const Message& message) const {
    const auto transfers = static_cast<std::int32_t>(routing_.transfers.size());
    const std::int32_t row = message.microbatch.value * 2 + (message.direction == Direction::backward ? 1 : 0);
    return row * transfers + by_receiver_[static_cast<std::size_t>(row % 2)].place[message.transfer.index()];
  }

  Message message_of(std::int32_t number) const {
    const auto transfers = static_cast<std::int32_t>(routing_.transfers.size());
    const std::int32_t row = number / transfers;
    return {by_receiver_[static_cast<std::size_t>(row % 2)].transfers[static_cast<std::size_t>(number % transfers)],
            Microbatch(row / 2), row % 2 == 1 ? Direction::backward : Direction::forward};
  }

  void count_dependencies(int num_chunks) {
    const std::size_t num_transfers = routing_.transfers.size();
    passed_on_.resize(num_transfers);
    feeds_.resize(num_transfers);
    std::vector<int> forward_needs(static_cast<std::size_t>(num_chunks), 0);
    std::vector<int> backward_needs(static_cast<std::size_t>(num_chunks), 0);
    std::vector<int> message_needs(num_transfers, 1);
    closers_.resize(num_transfers);
    for (std::size_t t = 0; t < num_transfers; ++t) {
      const Transfer& transfer = routing_.transfers[t];
      ++forward_needs[transfer.to_chunk.index()];
      if (transfer.after_arrival.value >= 0) {
        passed_on_[transfer.after_arrival.index()].push_back(TransferId(t));
      }
      const auto add_once = [](auto& list, auto id) {
        if (std::find(list.begin(), list.end(), id) == list.end()) {
          list.push_back(id);
        }
      };
      if (transfer.partial) {
        add_once(closers_[t], transfer.from_chunk);
      }
      for (const HoldingId id : transfer.holdings) {
        const Holding& parent = routing_.holdings[routing_.holdings[id.index()].parent.index()];
        if (parent.is_root()) {
          add_once(closers_[t], parent.bringer);
        } else {
          add_once(feeds_[t], parent.transfer);
        }
      }
    }
    for (std::size_t t = 0; t < num_transfers; ++t) {
      for (const TransferId fed : feeds_[t]) {
        ++message_needs[fed.index()];
      }
      for (const ChunkId chunk : closers_[t]) {
        ++backward_needs[chunk.index()];
      }
    }
    const auto microbatches = static_cast<std::size_t>(num_microbatches_);
    for (std::size_t chunk = 0; chunk < static_cast<std::size_t>(num_chunks); ++chunk) {
      needs_forward_.insert(needs_forward_.end(), microbatches, forward_needs[chunk]);
      needs_backward_.insert(needs_backward_.end(), microbatches, backward_needs[chunk]);
    }
    for (std::size_t m = 0; m < microbatches; ++m) {
      needs_message_.insert(needs_message_.end(), message_needs.begin(), message_needs.end());
    }
  }

  std::int64_t duration(Op op) const {
    switch (op) {
      case Op::forward:
        return costs_.forward;
      case Op::backward:
        return costs_.backward_input + costs_.backward_weight;
      case Op::backward_input:
        return costs_.backward_input;
      case Op::backward_weight:
        return costs_.backward_weight;
    }
    return 0;
  }

  void push(std::int64_t time, EventKind kind, std::int32_t subject) {
    events_.push({time, sequence_++, kind, subject});
  }

  void start_compute(std::size_t rank) {
    if (busy_[rank] || next_[rank] == rows_[rank].size()) {
      return;
    }
    const Compute& compute = rows_[rank][next_[rank]];
    const std::size_t key = per_chunk(compute.chunk, compute.microbatch);
    if ((compute.op == Op::forward && needs_forward_[key] > 0) ||
        (is_backward(compute.op) && needs_backward_[key] > 0)) {
      return;
    }
    busy_[rank] = true;
    const std::int64_t end = now_ + duration(compute.op);
    plan_.starts.push_back({.is_message = false,
                            .rank = RankId(rank),
                            .index = static_cast<std::int32_t>(next_[rank]),
                            .start = now_,
                            .end = end});
    push(end, EventKind::computed, static_cast<std::int32_t>(rank));
  }

  void submit(const Message& message) {
    const Transfer& transfer = routing_.transfers[message.transfer.index()];
    const std::int32_t number = number_of(message);
    const bool forward = message.direction == Direction::forward;
    if ((forward ? costs_.value_unit : costs_.gradient_unit) == 0) {
      start_message(number);  // nothing to hold
      return;
    }
    arbiter_.submit({.from = forward ? transfer.from : transfer.to,
                     .to = forward ? transfer.to : transfer.from,
                     .lane = transfer.lane,
                     .ready_at = now_,
                     .order = number});
  }

  void start_message(std::int32_t number) {
    const Message message = message_of(number);
    const Transfer& transfer = routing_.transfers[message.transfer.index()];
    const bool forward = message.direction == Direction::forward;
    const std::int64_t unit = forward ? costs_.value_unit : costs_.gradient_unit;
    const std::int64_t end = now_ + unit * transfer.units();
    plan_.starts.push_back({.is_message = true,
                            .rank = {},
                            .index = static_cast<std::int32_t>(plan_.messages.size()),
                            .start = now_,
                            .end = end,
                            .arrival = end + costs_.latency});
    plan_.messages.push_back(message);
    if (unit > 0) {
      push(end, EventKind::left_wire, number);
    }
    push(end + costs_.latency, EventKind::arrived, number);
  }

  void start_messages() {
    started_.clear();
    arbiter_.start_ready(started_);
    for (const NicArbiter::Request& request : started_) {
      start_message(static_cast<std::int32_t>(request.order));
    }
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case EventKind::computed:
        on_computed(static_cast<std::size_t>(event.subject));
        break;
      case EventKind::left_wire:
        on_left_wire(message_of(event.subject));
        break;
      case EventKind::arrived:
        on_arrived(message_of(event.subject));
        break;
    }
  }

  void on_computed(std::size_t rank) {
    const Compute compute = rows_[rank][next_[rank]];
    busy_[rank] = false;
    ++next_[rank];
    if (compute.op == Op::forward) {
      for (const TransferId id : routing_.after_chunk[compute.chunk.index()]) {
        submit({id, compute.microbatch, Direction::forward});
      }
    } else if (is_backward(compute.op)) {
      for (const TransferId id : routing_.into_chunk[compute.chunk.index()]) {
        satisfy_backward_message(id, compute.microbatch);
      }
    }
    start_compute(rank);
  }

  void satisfy_backward_message(TransferId id, Microbatch microbatch) {
    int& needs = needs_message_[microbatch.index() * routing_.transfers.size() + id.index()];
    if (--needs == 0) {
      submit({id, microbatch, Direction::backward});
    }
  }

  void on_left_wire(const Message& message) {
    const Transfer& transfer = routing_.transfers[message.transfer.index()];
    if (message.direction == Direction::forward) {
      arbiter_.release(transfer.from, transfer.to);
    } else {
      arbiter_.release(transfer.to, transfer.from);
    }
  }

  void on_arrived(const Message& message) {
    const Transfer& transfer = routing_.transfers[message.transfer.index()];
    if (message.direction == Direction::forward) {
      --needs_forward_[per_chunk(transfer.to_chunk, message.microbatch)];
      for (const TransferId id : passed_on_[message.transfer.index()]) {
        submit({id, message.microbatch, Direction::forward});
      }
      start_compute(transfer.to.index());
    } else {
      for (const ChunkId chunk : closers_[message.transfer.index()]) {
        --needs_backward_[per_chunk(chunk, message.microbatch)];
      }
      for (const TransferId id : feeds_[message.transfer.index()]) {
        satisfy_backward_message(id, message.microbatch);
      }
      start_compute(transfer.from.index());
    }
  }

  const Routing& routing_;
  const PlanCosts& costs_;
  int num_microbatches_;
  std::array<TransferOrder, 2> by_receiver_;  // forward, backward
  std::vector<std::vector<Compute>> rows_;    // [rank], pairs flattened
  std::vector<std::size_t> next_;
  std::vector<bool> busy_;
  std::vector<std::vector<TransferId>> passed_on_;  // forward: transfers that an arrival starts
  std::vector<std::vector<TransferId>> feeds_;      // backward: transfers whose sums this one joins
  std::vector<std::vector<ChunkId>> closers_;       // backward: chunks whose backward waits for this one
  std::vector<int> needs_forward_;                  // [chunk][microbatch] arrivals still missing
  std::vector<int> needs_backward_;
  std::vector<int> needs_message_;  // [microbatch][transfer], backward
  NicArbiter arbiter_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<NicArbiter::Request> started_;
  std::int64_t now_ = 0;
  std::int64_t sequence_ = 0;
  Plan plan_;
};

}  // namespace

Plan plan_order(const Schedule& schedule, const Routing& routing, const PlanCosts& costs) {
  return Planner(schedule, routing, costs).run();
}

}  // namespace plumb
