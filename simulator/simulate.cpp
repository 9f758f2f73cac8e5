// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/simulate.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "channel_order.hpp"
#include "plumb/cache/arbiter.hpp"
#include "plumb/cache/event_queue.hpp"
#include "plumb/schedule/error.hpp"
#include "step_graph.hpp"
#include "stuck.hpp"

namespace plumb {
namespace {

constexpr SimTime max_step{std::int64_t{1} << 62};

// What will happen at a known time. Two events of one instant commute, so ties need no rule.
struct Event {
  enum class Kind : std::uint8_t { computed, sent, arrived, send_noticed, arrival_noticed };
  Kind kind = Kind::computed;
  std::int32_t index = 0;  // computed: rank; others: message
};

// What all messages of one transfer in one direction have in common.
struct Hop {
  RankId from;
  RankId to;
  MessageLane lane = MessageLane::urgent;
  NicArbiter::Link link;
  SimTime unit_time{0};
  SimTime latency{0};
};

class Engine {
 public:
  Engine(const Program& program, const CostModel& costs, const SimOptions& options)
      : program_(program),
        costs_(costs),
        graph_(program),
        channels_(program, options.order),
        arbiter_(program.layout.pp(), options.duplex),
        states_(graph_.num_steps()),
        gates_(channels_.gates()),
        running_(program.ranks.size()),
        notices_late_(options.communication_waits_for_compute) {
    for (const Transfer& transfer : program.routing.transfers) {
      const MessageLane lane = options.urgent_first ? transfer.lane : MessageLane::urgent;
      hops_.push_back({make_hop(transfer.from, transfer.to, lane, &Link::value_unit),
                       make_hop(transfer.to, transfer.from, lane, &Link::gradient_unit)});
    }
    timeline_.messages.resize(program.messages.size());
    for (std::size_t m = 0; m < program.messages.size(); ++m) {
      timeline_.messages[m].units = static_cast<std::int32_t>(graph_.ends(MessageId(m)).num_segments);
    }
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      const RankProgram& rank = program.ranks[r];
      timeline_.ranks.push_back(
          {std::vector<ComputeTimes>(rank.compute.size()), std::vector<SimTime>(rank.comm.size())});
      prepare(RankId(r), rank);
    }
  }

  Timeline run() {
    start_what_waits_for_nothing();
    start_messages();
    while (true) {
      const std::int64_t next = events_.advance();
      if (next == EventQueue<Event>::never) break;
      now_ = SimTime(next);
      for (Event event; events_.pop(event);) {
        happen(event);
        propagate();
      }
      start_messages();
    }
    if (num_finished_ != graph_.num_steps()) throw_stuck(program_, graph_, pending(), gates_, channels_);
    timeline_.step = now_;
    return std::move(timeline_);
  }

 private:
  // All that is asked of a step again and again, side by side: twice its message, plus one at the receiver.
  struct StepState {
    static constexpr std::int32_t computes = -1;
    static constexpr std::int32_t local = -2;  // adds or zeroes

    SimTime inputs_computed{0};  // when the last computation behind what it waited for had ended
    std::int32_t pending = 0;    // events still to come
    std::int32_t subject = computes;
  };

  void prepare(RankId r, const RankProgram& rank) {
    StepState* state = states_.data() + graph_.compute(r, 0).index();
    for (std::size_t i = 0; i < rank.compute.size(); ++i, ++state) {
      state->pending = static_cast<std::int32_t>(rank.compute[i].waits.size()) + (i > 0 ? 1 : 0);
    }
    for (const CommStep& comm : rank.comm) {
      state->pending = static_cast<std::int32_t>(comm.waits.size());
      state->subject = comm.kind == CommKind::send      ? 2 * comm.message.value
                       : comm.kind == CommKind::receive ? 2 * comm.message.value + 1
                                                        : StepState::local;
      ++state;
    }
  }

  // Asks for the memory of what will follow when this step finishes: it is far ahead in the rank's list.
  void expect_end(StepId step) const {
    for (const StepId waiter : graph_.dependents(step)) {
      __builtin_prefetch(states_.data() + waiter.index());
    }
  }

  std::vector<std::int32_t> pending() const {
    std::vector<std::int32_t> all;
    for (const StepState& state : states_)
      all.push_back(state.pending);
    return all;
  }

  struct Finished {
    RankId rank;
    StepId step;
    SimTime computed;  // when the last computation behind this had ended
  };

  void start_what_waits_for_nothing() {
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      const RankProgram& rank = program_.ranks[r];
      if (!rank.compute.empty() && rank.compute.front().waits.size() == 0)
        ready(RankId(r), graph_.compute(RankId(r), 0));
      for (std::size_t i = 0; i < rank.comm.size(); ++i) {
        if (rank.comm[i].waits.size() == 0) ready(RankId(r), graph_.comm(RankId(r), static_cast<std::int32_t>(i)));
      }
    }
    propagate();
  }

  // A start may let the next of its queue begin, and that one may finish at once.
  void start_messages() {
    do {
      started_.clear();
      arbiter_.start_ready(started_);
      for (const NicArbiter::Started& started : started_) {
        start(MessageId(static_cast<std::int32_t>(started.order)));
      }
      propagate();
    } while (!started_.empty());
  }

  void happen(const Event& event) {
    if (event.kind == Event::Kind::computed) {
      const RankId rank(event.index);
      finished_.push_back({rank, graph_.compute(rank, running_[rank.index()]), now_});
      return;
    }
    const MessageId message(event.index);
    if (event.kind == Event::Kind::sent) {
      arbiter_.release(hop_of(message).link);
      sent(message);
    } else if (event.kind == Event::Kind::arrived) {
      arrived(message);
    } else {
      const bool leaves = event.kind == Event::Kind::send_noticed;
      const Hop& hop = hop_of(message);
      const MessageEnds& ends = graph_.ends(message);
      finished_.push_back({leaves ? hop.from : hop.to, leaves ? ends.send : ends.receive, computed(message)});
    }
  }

  // Everything that follows at this very instant: adds, zeroes, computations and messages that become ready.
  void propagate() {
    while (!finished_.empty()) {
      const RankId rank = finished_.back().rank;
      const StepId step = finished_.back().step;
      const SimTime computed = finished_.back().computed;
      finished_.pop_back();
      ++num_finished_;
      const Wait local = graph_.local(rank, step);
      if (local.on == Wait::On::comm) {
        timeline_.ranks[rank.index()].comm_done[static_cast<std::size_t>(local.step)] = now_;
      }
      for (const StepId waiter : graph_.dependents(step)) {
        StepState& state = states_[waiter.index()];
        state.inputs_computed = std::max(state.inputs_computed, computed);
        if (--state.pending == 0) ready(rank, waiter);
      }
    }
  }

  void ready(RankId rank, StepId step) {
    const StepState& state = states_[step.index()];
    if (state.subject == StepState::computes) {
      const std::int32_t index = graph_.local(rank, step).step;
      start(rank, step, index, program_.ranks[rank.index()].compute[static_cast<std::size_t>(index)].compute);
    } else if (state.subject == StepState::local) {
      finished_.push_back({rank, step, state.inputs_computed});
    } else {
      const MessageId message(state.subject / 2);
      MessageTimes& times = timeline_.messages[message.index()];
      (state.subject % 2 == 0 ? times.send_ready : times.posted) = now_;
      pass_gate(message);
    }
  }

  void start(RankId rank, StepId step, std::int32_t index, const Compute& compute) {
    const SimTime end = now_ + costs_.time_of(compute);
    timeline_.ranks[rank.index()].compute[static_cast<std::size_t>(index)] = {
        now_, end, now_ - states_[step.index()].inputs_computed};
    running_[rank.index()] = index;
    expect_end(step);
    push(end, {Event::Kind::computed, rank.value});
  }

  // The place in the queue is decided by when the data was there; a receive posted later does not lose it.
  void pass_gate(MessageId message) {
    if (--gates_[message.index()] > 0) return;
    const Hop& hop = hop_of(message);
    if (occupies_link(hop, message)) {
      arbiter_.submit(hop.link, hop.lane, timeline_.messages[message.index()].send_ready.count(), message.value);
    } else {
      start(message);
    }
  }

  void start(MessageId message) {
    MessageTimes& times = timeline_.messages[message.index()];
    times.start = now_;
    for (const MessageId next : channels_.after(message)) {
      pass_gate(next);
    }
    const Hop& hop = hop_of(message);
    if (occupies_link(hop, message)) {
      expect_end(graph_.ends(message).send);
      expect_end(graph_.ends(message).receive);
      push(now_ + hop.unit_time * times.units, {Event::Kind::sent, message.value});
    } else {
      sent(message);
    }
  }

  void sent(MessageId message) {
    const StepId send = graph_.ends(message).send;
    const Hop& hop = hop_of(message);
    MessageTimes& times = timeline_.messages[message.index()];
    times.sent = now_;
    times.arrived = now_ + hop.latency;
    notice({hop.from, send, computed(message)}, {Event::Kind::send_noticed, message.value});
    if (times.arrived == now_) {
      arrived(message);
    } else {
      push(times.arrived, {Event::Kind::arrived, message.value});
    }
  }

  void arrived(MessageId message) {
    notice({hop_of(message).to, graph_.ends(message).receive, computed(message)},
           {Event::Kind::arrival_noticed, message.value});
  }

  // At once; or, if asked for, at the end of the computation that the rank is in the midst of.
  void notice(const Finished& done, const Event& later) {
    if (notices_late_) {
      const auto running = static_cast<std::size_t>(running_[done.rank.index()]);
      const ComputeTimes& computes = timeline_.ranks[done.rank.index()].compute[running];
      if (computes.start < now_ && now_ < computes.end) return push(computes.end, later);
    }
    finished_.push_back(done);
  }

  SimTime computed(MessageId message) const {
    const MessageEnds& ends = graph_.ends(message);
    return std::max(states_[ends.send.index()].inputs_computed, states_[ends.receive.index()].inputs_computed);
  }

  Hop make_hop(RankId from, RankId to, MessageLane lane, SimTime Link::*unit) {
    const Link& link = costs_.link(from, to);
    return {from, to, lane, arbiter_.link(from, to), link.*unit, link.latency};
  }

  const Hop& hop_of(MessageId id) const {
    const Message& message = program_.messages[id.index()];
    return hops_[message.transfer.index()][message.direction == Direction::forward ? 0 : 1];
  }

  bool occupies_link(const Hop& hop, MessageId message) const {
    return hop.unit_time.count() > 0 && timeline_.messages[message.index()].units > 0;
  }

  void push(SimTime at, const Event& event) {
    if (at > max_step) {
      throw InputError("the step would take more than 53 days of virtual time: give smaller costs");
    }
    events_.push(at.count(), event);
  }

  const Program& program_;
  const CostModel& costs_;
  const StepGraph graph_;
  const ChannelOrders channels_;
  NicArbiter arbiter_;
  std::vector<StepState> states_;      // [step]
  std::vector<std::uint8_t> gates_;    // [message] send ready, receive posted, predecessors on the channel started
  std::vector<std::int32_t> running_;  // [rank] index of its current computation
  bool notices_late_;
  std::vector<std::array<Hop, 2>> hops_;  // [transfer][direction]
  EventQueue<Event> events_;
  std::vector<Finished> finished_;
  std::vector<NicArbiter::Started> started_;
  SimTime now_{0};
  std::size_t num_finished_ = 0;
  Timeline timeline_;
};

}  // namespace

Timeline simulate(const Program& program, const CostModel& costs, const SimOptions& options) {
  costs.require_fits(program.layout.num_chunks(), program.layout.pp());
  return Engine(program, costs, options).run();
}

}  // namespace plumb
