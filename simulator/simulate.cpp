// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/simulate.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "engine_state.hpp"
#include "plumb/schedule/error.hpp"
#include "recurrence.hpp"
#include "repetition.hpp"
#include "simulate_steps.hpp"
#include "stuck.hpp"

namespace plumb {
namespace {

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
  // A computation that starts has so many of the rank's next ones opened.
  Engine(const Program& the_program, const CostModel& costs, const SimOptions& options, std::int32_t open_ahead)
      : EngineState(the_program, options.order, options.duplex),
        costs_(costs),
        notices_late_(options.communication_waits_for_compute),
        open_ahead_(open_ahead) {
    for (const Transfer& transfer : program.routing.transfers) {
      const MessageLane lane = options.urgent_first ? transfer.lane : MessageLane::urgent;
      hops_.push_back({make_hop(transfer.from, transfer.to, lane, &Link::value_unit),
                       make_hop(transfer.to, transfer.from, lane, &Link::gradient_unit)});
    }
  }

  // Through every step. Throws what is wrong with the program, and SimulationStuck.
  void run() {
    if (!open_all()) static_cast<void>(StepGraph(program));  // says what it is
    propagate();
    start_messages();
    while (next_instant() != EventQueue<SimEvent>::never)
      go_through_instant();
    if (num_finished != num_steps()) throw_stuck(program, StepGraph(program), pending(), gates, channels);
    timeline.step = now;
  }

  // What comes back is told again instead of gone through. Returns how many steps that were. Throws NotOpened and
  // NotRepeated.
  std::int64_t run_repeating() {
    std::int64_t num_repeated = 0;
    Recurrence recurrence(*this);
    for (RankId rank; rank.index() < program.ranks.size(); rank = rank.next())
      open_steps(rank, 0);
    has_begun_ = true;
    propagate();
    start_messages();
    while (next_instant() != EventQueue<SimEvent>::never) {
      // Not between two events of one instant.
      if (SimTime(next_) > now && recurrence.look()) {
        num_repeated += repeat(*this, recurrence.period(), recurrence.times());
      } else {
        go_through_instant();
      }
    }
    if (num_finished != num_steps() || num_started != program.messages.size()) throw NotOpened{};
    timeline.step = now;
    return num_repeated;
  }
  Timeline take() { return std::move(timeline); }

 private:
  std::int64_t next_instant() { return next_ = events.advance(); }

  void go_through_instant() {
    now = SimTime(next_);
    for (SimEvent event; events.pop(event);) {
      happen(event);
      propagate();
    }
    start_messages();
  }

  // False if something is wrong with a message.
  bool open_all() {
    try {
      for (RankId rank; rank.index() < program.ranks.size(); rank = rank.next())
        open_all(rank);
    } catch (const NotOpened&) {
      return false;
    }
    for (MessageId message; message.index() < ends.size(); message = message.next()) {
      if (ends[message.index()].send == 0 || ends[message.index()].receive == 0) return false;
    }
    return true;
  }

  void open_all(RankId rank) {
    Open& here = open[rank.index()];
    const RankProgram& all = program.ranks[rank.index()];
    here.place = static_cast<std::int32_t>(all.order.size());
    for (here.computes = 0; here.computes < static_cast<std::int32_t>(all.compute.size()); ++here.computes)
      has_opened(rank, open_compute(rank, here.computes));
    for (here.comms = 0; here.comms < static_cast<std::int32_t>(all.comm.size()); ++here.comms)
      has_opened(rank, open_comm(rank, here.comms));
  }

  // As far as the computation of that number needs it.
  void open_steps(RankId rank, std::int32_t compute) {
    const auto visit = [&](const Opened& opened) { has_opened(rank, opened); };
    while (open[rank.index()].computes <= compute + open_ahead_ && open_next(rank, visit)) {
    }
  }

  // A message is not to wait for a receive that is posted long since, but not open.
  void open_receive(MessageId message) {
    const RankId rank = hop_of(message).to;
    const auto visit = [&](const Opened& opened) { has_opened(rank, opened); };
    while (ends[message.index()].receive == 0 && open_next(rank, visit)) {
    }
    if (ends[message.index()].receive == 0) throw NotOpened{};
  }

  void has_opened(RankId rank, const Opened& opened) {
    if (opened.pending > 0) return;
    const StepState& state = states[opened.step.index()];
    if (!has_begun_ || (opened.ready == now && state.is_receive())) {
      ready_.push_back({rank, opened.step, SimTime(0)});
      return;
    }
    // It may have been ready in an earlier round of this instant, and then something else would have waited for it.
    if (!state.is_receive()) throw NotOpened{};
    timeline.messages[state.message().index()].posted = opened.ready;
    if (!open_gate(state.message(), receive_missing) || gates[state.message().index()] == 0) throw NotOpened{};
  }

  // Asks for the memory of what will follow when this step finishes: it is far ahead in the rank's list.
  void expect_end(StepId step) const {
    for_each_waiter(step, [&](StepId waiter) { __builtin_prefetch(states.data() + waiter.index()); });
  }

  std::vector<std::int32_t> pending() const {
    std::vector<std::int32_t> all;
    for (std::size_t step = 0; step < num_steps(); ++step)
      all.push_back(states[step].pending);
    return all;
  }

  struct Finished {
    RankId rank;
    StepId step;
    SimTime computed;  // when the last computation behind this had ended
  };

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
      finished_.push_back({rank, compute_id(rank, running[rank.index()]), now});
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
      finished_.push_back(
          {leaves ? hop.from : hop.to, leaves ? send_of(message) : receive_of(message), computed(message)});
    }
  }

  // Everything that follows at this very instant: adds, zeroes, computations and messages that become ready.
  void propagate() {
    while (!finished_.empty() || !ready_.empty()) {
      if (!ready_.empty()) {
        const Finished next = ready_.back();
        ready_.pop_back();
        ready(next.rank, next.step);
        continue;
      }
      const Finished done = finished_.back();
      finished_.pop_back();
      ++num_finished;
      if (is_compute(done.rank, done.step)) {
        const std::int32_t next = ++num_computed[done.rank.index()];
        if (next < open[done.rank.index()].computes) has_happened(done, compute_id(done.rank, next));
      } else {
        const auto index = static_cast<std::size_t>(comm_index(done.rank, done.step));
        timeline.ranks[done.rank.index()].comm_done[index] = now;
      }
      for_each_waiter(done.step, [&](StepId waiter) { has_happened(done, waiter); });
    }
  }

  void has_happened(const Finished& done, StepId waiter) {
    StepState& state = states[waiter.index()];
    state.inputs_computed = std::max(state.inputs_computed, done.computed);
    if (--state.pending == 0) ready_.push_back({done.rank, waiter, SimTime(0)});
  }

  void ready(RankId rank, StepId step) {
    const StepState& state = states[step.index()];
    if (is_compute(rank, step)) {
      const std::int32_t index = compute_index(rank, step);
      start(rank, step, index, compute(rank, index).compute);
      open_steps(rank, index);
    } else if (!state.is_end()) {
      finished_.push_back({rank, step, state.inputs_computed});
    } else {
      const MessageId message = state.message();
      MessageTimes& times = timeline.messages[message.index()];
      if (state.is_send()) {
        open_receive(message);
        times.send_ready = now;
        pass_gate(message, send_missing);
      } else {
        times.posted = now;
        pass_gate(message, receive_missing);
      }
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
  void pass_gate(MessageId message, std::uint8_t gate) {
    if (!open_gate(message, gate)) throw NotOpened{};
    if (gates[message.index()] > 0) return;
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
    ++num_started;
    for (const MessageId next : channels.after(message)) {
      pass_gate(next, one_before);
    }
    const Hop& hop = hop_of(message);
    if (occupies_link(hop, message)) {
      expect_end(send_of(message));
      expect_end(receive_of(message));
      if (hop.unit_time > (max_step - now) / times.units) refuse_length();
      push(now + hop.unit_time * times.units, {SimEvent::Kind::sent, message.value});
    } else {
      sent(message);
    }
  }

  void sent(MessageId message) {
    const StepId send = send_of(message);
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
    notice({hop_of(message).to, receive_of(message), computed(message)},
           {SimEvent::Kind::arrival_noticed, message.value});
  }

  // At once; or, if asked for, at the end of the computation that the rank is in the midst of.
  void notice(const Finished& done, const SimEvent& later) {
    if (notices_late_ && !timeline.ranks[done.rank.index()].compute.empty()) {
      const auto last = static_cast<std::size_t>(running[done.rank.index()]);
      const ComputeTimes& computes = timeline.ranks[done.rank.index()].compute[last];
      if (computes.start < now && now < computes.end) return push(computes.end, later);
    }
    finished_.push_back(done);
  }

  Hop make_hop(RankId from, RankId to, MessageLane lane, SimTime Link::*unit) {
    const Link& link = costs_.link(from, to);
    return {from, to, lane, arbiter.link(from, to), link.*unit, link.latency};
  }

  const Hop& hop_of(MessageId id) const {
    const Message& message = program.messages[id.index()];
    return hops_[message.transfer.index()][message.direction == Direction::forward ? 0 : 1];
  }

  bool occupies_link(const Hop& hop, MessageId message) const {
    return hop.unit_time.count() > 0 && timeline.messages[message.index()].units > 0;
  }

  [[noreturn]] static void refuse_length() {
    throw InputError("the step would take more than 53 days of virtual time: give smaller costs");
  }

  void push(SimTime at, const SimEvent& event) {
    if (at > max_step) {
      refuse_length();
    }
    events.push(at.count(), event);
  }

  const CostModel& costs_;
  bool notices_late_;
  std::vector<std::array<Hop, 2>> hops_;  // [transfer][direction]
  const std::int32_t open_ahead_;
  std::int64_t next_ = 0;   // instant
  bool has_begun_ = false;  // all that is opened first is open
  std::vector<Finished> ready_;
  std::vector<Finished> finished_;
  std::vector<NicArbiter::Started> started_;
};

// A small program is through before its repetitions are found.
constexpr std::size_t fewest_steps = std::size_t{1} << 16;

// Computations of a rank between the one that starts and the last that is open: more than anything of our programs is
// ready ahead of its turn, but where the network is full.
constexpr std::int32_t usual_open_ahead = 128;

}  // namespace

Timeline simulate_step_by_step(const Program& program, const CostModel& costs, const SimOptions& options) {
  Engine engine(program, costs, options, 0);
  engine.run();
  return engine.take();
}

std::optional<RepeatedTimeline> simulate_repeating(const Program& program, const CostModel& costs,
                                                   const SimOptions& options, std::int32_t open_ahead) {
  try {
    Engine engine(program, costs, options, open_ahead);
    const std::int64_t num_repeated = engine.run_repeating();
    return RepeatedTimeline{engine.take(), num_repeated};
  } catch (const NotOpened&) {
  } catch (const NotRepeated&) {
  } catch (const InputError&) {  // the plain way says it, or something that comes before it
  }
  return {};
}

Timeline simulate(const Program& program, const CostModel& costs, const SimOptions& options) {
  costs.require_fits(program.layout.num_chunks(), program.layout.pp());
  std::size_t num_steps = 0;
  for (const RankProgram& rank : program.ranks)
    num_steps += rank.compute.size() + rank.comm.size();
  if (num_steps >= fewest_steps) {
    if (std::optional<RepeatedTimeline> repeated = simulate_repeating(program, costs, options, usual_open_ahead))
      return std::move(repeated->timeline);
  }
  return simulate_step_by_step(program, costs, options);
}

}  // namespace plumb
