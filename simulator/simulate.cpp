// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/simulate.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "engine_state.hpp"
#include "plumb/schedule/error.hpp"
#include "recurrence.hpp"
#include "simulate_steps.hpp"
#include "stuck.hpp"
#include "unfold.hpp"

namespace plumb {
namespace {

constexpr SimTime max_step_time{std::int64_t{1} << 62};

// What all messages of one transfer in one direction have in common.
struct Hop {
  RankId from;
  RankId to;
  MessageLane lane = MessageLane::urgent;
  NicArbiter::Link link;
  SimTime unit_time{0};
  SimTime latency{0};
};

class Engine : private EngineState {
 public:
  Engine(const Program& the_program, const ProgramCut& the_cut, const CostModel& costs, const SimOptions& options)
      : EngineState(the_program, the_cut, options.order, options.duplex),
        costs_(costs),
        notices_late_(options.communication_waits_for_compute) {
    for (const Transfer& transfer : program.routing.transfers) {
      const MessageLane lane = options.urgent_first ? transfer.lane : MessageLane::urgent;
      hops_.push_back({make_hop(transfer.from, transfer.to, lane, &Link::value_unit),
                       make_hop(transfer.to, transfer.from, lane, &Link::gradient_unit)});
    }
    resize(timeline.messages, cut.messages, {});
    for (std::size_t m = 0; m < timeline.messages.size(); ++m) {
      timeline.messages[m].units = static_cast<std::int32_t>(graph.ends(MessageId(m)).num_segments);
    }
    for (RankId r; r.index() < program.ranks.size(); r = r.next()) {
      RankTimeline& rank = timeline.ranks.emplace_back();
      resize(rank.compute, cut.compute[r.index()], {});
      resize(rank.comm_done, cut.comm[r.index()], unfinished);
      prepare(r);
    }
  }

  // False if it ends early: periods are left out, and none was found that stands for them.
  bool run() {
    Recurrence recurrence(*this);
    start_what_waits_for_nothing();
    start_messages();
    while (true) {
      const std::int64_t next = events.advance();
      if (next == EventQueue<SimEvent>::never) break;
      if (recurrence.watches() && next > now.count()) recurrence.look();
      if (cut.periods > 0 && !recurrence.watches() && !recurrence.found()) return false;
      now = SimTime(next);
      for (SimEvent event; events.pop(event);) {
        happen(event);
        propagate();
      }
      start_messages();
    }
    if (num_finished_ != graph.num_steps()) throw_stuck(program, graph, pending(), gates, channels);
    timeline.step = now;
    if (cut.periods == 0) return true;
    if (recurrence.found()) unfold(timeline, program, cut, recurrence.begin(), recurrence.end());
    return recurrence.found();
  }
  Timeline take() { return std::move(timeline); }

 private:
  // With room for all that will be told.
  template <class T>
  static void resize(std::vector<T>& list, const ListCut& cut, const T& value) {
    list.reserve(static_cast<std::size_t>(cut.original_size()));
    list.resize(static_cast<std::size_t>(cut.size), value);
  }

  void prepare(RankId r) {
    const ListCut& computes = cut.compute[r.index()];
    StepState* state = states.data() + graph.compute(r, 0).index();
    for (std::int32_t i = 0; i < computes.size; ++i, ++state) {
      state->pending = static_cast<std::int32_t>(compute(r, i).waits.size()) + (i > 0 ? 1 : 0);
    }
    const ListCut& comms = cut.comm[r.index()];
    for (std::int32_t i = 0; i < comms.size; ++i, ++state) {
      const CommStep& step = comm(r, i);
      const std::int32_t message = cut.message(step.message, i >= comms.at).value;
      state->pending = static_cast<std::int32_t>(step.waits.size());
      state->subject = step.kind == CommKind::send      ? 2 * message
                       : step.kind == CommKind::receive ? 2 * message + 1
                                                        : StepState::local;
    }
  }

  // Asks for the memory of what will follow when this step finishes: it is far ahead in the rank's list.
  void expect_end(StepId step) const {
    for (const StepId waiter : graph.dependents(step)) {
      __builtin_prefetch(states.data() + waiter.index());
    }
  }

  std::vector<std::int32_t> pending() const {
    std::vector<std::int32_t> all;
    for (const StepState& state : states)
      all.push_back(state.pending);
    return all;
  }

  struct Finished {
    RankId rank;
    StepId step;
    SimTime computed;  // when the last computation behind this had ended
  };

  void start_what_waits_for_nothing() {
    for (RankId r; r.index() < program.ranks.size(); r = r.next()) {
      const std::int32_t num_comms = cut.comm[r.index()].size;
      if (cut.compute[r.index()].size > 0 && compute(r, 0).waits.size() == 0) ready(r, graph.compute(r, 0));
      for (std::int32_t i = 0; i < num_comms; ++i) {
        if (comm(r, i).waits.size() == 0) ready(r, graph.comm(r, i));
      }
    }
    propagate();
  }

  // A start may let the next of its queue begin, and that one may finish at once.
  void start_messages() {
    do {
      started_.clear();
      arbiter.start_ready(started_);
      for (const NicArbiter::Started& started : started_) {
        start(MessageId(static_cast<std::int32_t>(started.order)));
      }
      propagate();
    } while (!started_.empty());
  }

  void happen(const SimEvent& event) {
    if (event.kind == SimEvent::Kind::computed) {
      const RankId rank(event.index);
      finished_.push_back({rank, graph.compute(rank, running[rank.index()]), now});
      return;
    }
    const MessageId message(event.index);
    if (event.kind == SimEvent::Kind::sent) {
      arbiter.release(hop_of(message).link);
      sent(message);
    } else if (event.kind == SimEvent::Kind::arrived) {
      arrived(message);
    } else {
      const bool leaves = event.kind == SimEvent::Kind::send_noticed;
      const Hop& hop = hop_of(message);
      const MessageEnds& ends = graph.ends(message);
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
      const Wait local = graph.local(rank, step);
      if (local.on == Wait::On::comm) {
        timeline.ranks[rank.index()].comm_done[static_cast<std::size_t>(local.step)] = now;
      }
      for (const StepId waiter : graph.dependents(step)) {
        StepState& state = states[waiter.index()];
        state.inputs_computed = std::max(state.inputs_computed, computed);
        if (--state.pending == 0) ready(rank, waiter);
      }
    }
  }

  void ready(RankId rank, StepId step) {
    const StepState& state = states[step.index()];
    if (state.subject == StepState::computes) {
      const std::int32_t index = graph.local(rank, step).step;
      start(rank, step, index, compute(rank, index).compute);
    } else if (state.subject == StepState::local) {
      finished_.push_back({rank, step, state.inputs_computed});
    } else {
      const MessageId message(state.subject / 2);
      MessageTimes& times = timeline.messages[message.index()];
      (state.subject % 2 == 0 ? times.send_ready : times.posted) = now;
      pass_gate(message);
    }
  }

  void start(RankId rank, StepId step, std::int32_t index, const Compute& computation) {
    const SimTime end = now + costs_.time_of(computation);
    timeline.ranks[rank.index()].compute[static_cast<std::size_t>(index)] = {
        now, end, now - states[step.index()].inputs_computed};
    running[rank.index()] = index;
    expect_end(step);
    push(end, {SimEvent::Kind::computed, rank.value});
  }

  // The place in the queue is decided by when the data was there; a receive posted later does not lose it.
  void pass_gate(MessageId message) {
    if (--gates[message.index()] > 0) return;
    const Hop& hop = hop_of(message);
    if (occupies_link(hop, message)) {
      arbiter.submit(hop.link, hop.lane, timeline.messages[message.index()].send_ready.count(), message.value);
    } else {
      start(message);
    }
  }

  void start(MessageId message) {
    MessageTimes& times = timeline.messages[message.index()];
    times.start = now;
    for (const MessageId next : channels.after(message)) {
      pass_gate(next);
    }
    const Hop& hop = hop_of(message);
    if (occupies_link(hop, message)) {
      expect_end(graph.ends(message).send);
      expect_end(graph.ends(message).receive);
      push(now + hop.unit_time * times.units, {SimEvent::Kind::sent, message.value});
    } else {
      sent(message);
    }
  }

  void sent(MessageId message) {
    const StepId send = graph.ends(message).send;
    const Hop& hop = hop_of(message);
    MessageTimes& times = timeline.messages[message.index()];
    times.sent = now;
    times.arrived = now + hop.latency;
    notice({hop.from, send, computed(message)}, {SimEvent::Kind::send_noticed, message.value});
    if (times.arrived == now) {
      arrived(message);
    } else {
      push(times.arrived, {SimEvent::Kind::arrived, message.value});
    }
  }

  void arrived(MessageId message) {
    notice({hop_of(message).to, graph.ends(message).receive, computed(message)},
           {SimEvent::Kind::arrival_noticed, message.value});
  }

  // At once; or, if asked for, at the end of the computation that the rank is in the midst of.
  void notice(const Finished& done, const SimEvent& later) {
    if (notices_late_) {
      const auto last = static_cast<std::size_t>(running[done.rank.index()]);
      const ComputeTimes& computes = timeline.ranks[done.rank.index()].compute[last];
      if (computes.start < now && now < computes.end) return push(computes.end, later);
    }
    finished_.push_back(done);
  }

  SimTime computed(MessageId message) const {
    const MessageEnds& ends = graph.ends(message);
    return std::max(states[ends.send.index()].inputs_computed, states[ends.receive.index()].inputs_computed);
  }

  Hop make_hop(RankId from, RankId to, MessageLane lane, SimTime Link::*unit) {
    const Link& link = costs_.link(from, to);
    return {from, to, lane, arbiter.link(from, to), link.*unit, link.latency};
  }

  const Hop& hop_of(MessageId id) const {
    const Message& message = this->message(id);
    return hops_[message.transfer.index()][message.direction == Direction::forward ? 0 : 1];
  }

  bool occupies_link(const Hop& hop, MessageId message) const {
    return hop.unit_time.count() > 0 && timeline.messages[message.index()].units > 0;
  }

  void push(SimTime at, const SimEvent& event) {
    if (at > max_step_time) {
      throw InputError("the step would take more than 53 days of virtual time: give smaller costs");
    }
    events.push(at.count(), event);
  }

  const CostModel& costs_;
  bool notices_late_;
  std::vector<std::array<Hop, 2>> hops_;  // [transfer][direction]
  std::vector<Finished> finished_;
  std::vector<NicArbiter::Started> started_;
  std::size_t num_finished_ = 0;
};

// A small program is through before its repetitions are found.
constexpr std::size_t fewest_steps = std::size_t{1} << 16;

}  // namespace

std::optional<Timeline> simulate_shortened(const Program& program, const ProgramCut& cut, const CostModel& costs,
                                           const SimOptions& options) {
  try {
    Engine engine(program, cut, costs, options);
    if (engine.run()) return engine.take();
  } catch (const NotWhole&) {
  } catch (const InputError&) {  // the whole program says it in its own numbers
  } catch (const SimulationStuck&) {
  }
  return {};
}

Timeline simulate_step_by_step(const Program& program, const CostModel& costs, const SimOptions& options) {
  const ProgramCut cut = whole(program);
  Engine engine(program, cut, costs, options);
  engine.run();
  return engine.take();
}

Timeline simulate(const Program& program, const CostModel& costs, const SimOptions& options) {
  costs.require_fits(program.layout.num_chunks(), program.layout.pp());
  std::size_t num_steps = 0;
  for (const RankProgram& rank : program.ranks)
    num_steps += rank.compute.size() + rank.comm.size();
  // Where the shortest cut leaves too little to come back, one period more may do.
  for (int kept = 0; num_steps >= fewest_steps && kept < 2; ++kept) {
    const std::optional<ProgramCut> cut = find_cut(program, kept);
    if (!cut) break;
    if (std::optional<Timeline> timeline = simulate_shortened(program, *cut, costs, options))
      return *std::move(timeline);
  }
  return simulate_step_by_step(program, costs, options);
}

}  // namespace plumb
