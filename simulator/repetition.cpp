// SPDX-License-Identifier: Apache-2.0
#include "repetition.hpp"

#include <algorithm>
#include <utility>

namespace plumb {
namespace {

// What happened in the period to a communication step that finished in it.
struct CommEvents {
  std::int32_t step = 0;
  bool receives = false;
};

// What happened to a message, but for the receive that was posted.
struct MessageEvents {
  MessageId message;
  bool ready = false;
  bool started = false;
  bool sent = false;
};

// Steps, and messages that were received, whose inputs had been computed before the period began: a slot that became
// free before may count as well, and that is no period ago one period later.
struct OldInputs {
  RankId rank;
  Wait step;
  SimTime inputs_computed{0};
};

// The first place of a rank's order at which a step is that is not among the first so many of either list.
std::int32_t first_place(const RankProgram& rank, std::int32_t computes, std::int32_t comms) {
  std::int32_t low = 0;
  std::int32_t high = length_of(rank.order);
  while (low < high) {
    const std::int32_t middle = low + (high - low) / 2;
    const StepRef entry = rank.order[place(middle)];
    const auto index = static_cast<std::int32_t>(entry.index);
    const std::int32_t comms_until = entry.comm ? index + 1 : middle - index;
    if (comms_until > comms || middle + 1 - comms_until > computes) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

class Repetition {
 public:
  Repetition(EngineState& state, const Period& period, std::int32_t times)
      : state_(state), period_(period), times_(times) {}

  std::int64_t tell() {
    for (RankId rank; rank.index() < state_.program.ranks.size(); rank = rank.next())
      find_events(rank);
    // Times of messages lie in their order; that of a rank goes through all of them.
    std::sort(messages_.begin(), messages_.end(),
              [](const MessageEvents& a, const MessageEvents& b) { return a.message < b.message; });
    for (time_ = 1; time_ <= times_; ++time_) {
      by_ = time_ * period_.duration();
      for (const MessageEvents& events : messages_)
        tell(events);
      for (RankId rank; rank.index() < state_.program.ranks.size(); rank = rank.next())
        tell(rank);
    }
    move_on();
    require_same_inputs();
    for (RankId rank; rank.index() < state_.program.ranks.size(); rank = rank.next())
      reopen(rank);
    require_gates();
    return num_finished_;
  }

 private:
  // What never happened has the time zero, and no period begins earlier.
  bool in_period(SimTime time) const { return time > period_.begin && time <= period_.end; }

  void find_events(RankId rank) {
    const RankTimeline& times = state_.timeline.ranks[rank.index()];
    ListPeriod& started = started_.emplace_back(period_.compute[rank.index()]);
    started.end = started.begin + started.steps;
    num_finished_ += std::int64_t{times_} * started.steps;
    // The one that runs at the period's end, if one does, stands for one that ran at its begin.
    if (started.end < state_.open[rank.index()].computes && state_.compute_state(rank, started.end).pending == 0) {
      ++started.begin;
      ++started.end;
    }
    for (std::int32_t i = started.begin; i < started.end; ++i)
      note_inputs(rank, {Wait::On::compute, i}, state_.compute_state(rank, i).inputs_computed);
    std::vector<CommEvents>& comms = comms_.emplace_back();
    const ListPeriod& list = period_.comm[rank.index()];
    bool any = false;
    for (std::int32_t i = list.begin; i < list.end; ++i) {
      const StepState& state = state_.comm_state(rank, i);
      const bool finished = in_period(times.comm_done[place(i)]);
      if (finished) comms.push_back({i, state.is_receive()});
      bool ready = !state.is_end() && finished;
      if (state.is_send()) {
        const MessageTimes& message = state_.timeline.messages[state.message().index()];
        ready = in_period(message.send_ready);
        const bool started_now = in_period(message.start);
        const bool sent = in_period(message.sent);
        if (ready || started_now || sent) messages_.push_back({state.message(), ready, started_now, sent});
        any = any || started_now || sent;
      }
      any = any || ready || finished;
      if (ready) note_inputs(rank, {Wait::On::comm, i}, state.inputs_computed);
      if (finished && state.is_receive()) note_inputs(rank, {Wait::On::comm, i}, state_.computed(state.message()));
    }
    if (list.steps == 0 && any) throw NotRepeated{};
    num_finished_ += std::int64_t{times_} * length_of(comms);
  }

  void note_inputs(RankId rank, Wait step, SimTime inputs_computed) {
    if (inputs_computed <= period_.begin) old_.push_back({rank, step, inputs_computed});
  }

  void tell(RankId rank) {
    RankTimeline& times = state_.timeline.ranks[rank.index()];
    const ListPeriod& started = started_[rank.index()];
    const std::int32_t by_computes = time_ * started.steps;
    for (std::int32_t i = started.begin; i < started.end; ++i) {
      const ComputeTimes& told = times.compute[place(i)];
      times.compute[place(i + by_computes)] = {told.start + by_, told.end + by_, told.exposed};
    }
    const std::int32_t by_comms = time_ * period_.comm[rank.index()].steps;
    for (const CommEvents& events : comms_[rank.index()]) {
      times.comm_done[place(events.step + by_comms)] = times.comm_done[place(events.step)] + by_;
      if (events.receives) tell_posted(rank, events.step, events.step + by_comms);
    }
  }

  void tell_posted(RankId rank, std::int32_t told, std::int32_t step) {
    const MessageId message = state_.comm(rank, step).message;
    if (!state_.open_gate(message, EngineState::receive_missing)) return;  // posted before
    const SimTime posted = state_.timeline.messages[state_.comm_state(rank, told).message().index()].posted;
    state_.timeline.messages[message.index()].posted = in_period(posted) ? posted + by_ : slots_free(rank, step);
  }

  SimTime slots_free(RankId rank, std::int32_t receive) const {
    SimTime free{0};
    for (const Wait wait : state_.program.ranks[rank.index()].waits_of(state_.comm(rank, receive).waits))
      free = std::max(free, state_.timeline.finished(rank, wait));
    return free;
  }

  void tell(const MessageEvents& events) {
    const MessageId message(events.message.value + time_ * period_.messages);
    const MessageTimes& told = state_.timeline.messages[events.message.index()];
    MessageTimes& times = state_.timeline.messages[message.index()];
    if (events.ready) {
      times.send_ready = told.send_ready + by_;
      open_gate(message, EngineState::send_missing);
    }
    if (events.started) {
      times.start = told.start + by_;
      times.units = told.units;
      ++state_.num_started;
      for (const MessageId next : state_.channels.after(message))
        open_gate(next, EngineState::one_before);
    }
    if (events.sent) {
      times.sent = told.sent + by_;
      times.arrived = told.arrived + by_;
    }
  }

  void open_gate(MessageId message, std::uint8_t gate) {
    if (!state_.open_gate(message, gate)) throw NotRepeated{};
  }

  void move_on() {
    const std::int32_t messages = times_ * period_.messages;
    const SimTime by = times_ * period_.duration();
    EngineState::Told& told = state_.told.emplace_back();
    told = {period_.end, period_.end + by, period_.duration(), {}};
    for (const ListPeriod& list : period_.comm)
      told.comms.push_back(list.steps);
    std::vector<std::pair<std::int64_t, SimEvent>> coming;
    state_.events.for_each([&](std::int64_t time, const SimEvent& event) { coming.emplace_back(time, event); });
    state_.now = told.end;
    state_.events.restart(state_.now.count());
    for (auto& [time, event] : coming) {
      if (event.is_of_message()) {
        on_their_way_.push_back(MessageId(event.index));
        event.index += messages;
      }
      state_.events.push(time + by.count(), event);
    }
    state_.arbiter.postpone(by.count(), messages);
    state_.num_finished += static_cast<std::size_t>(num_finished_);
  }

  // Of each step told whose inputs are old: what had to be computed for it was so as long before.
  void require_same_inputs() const {
    for (const OldInputs& old : old_) {
      const bool computes = old.step.on == Wait::On::compute;
      const std::int32_t steps = (computes ? period_.compute : period_.comm)[old.rank.index()].steps;
      for (std::int32_t time = 1; time <= times_; ++time) {
        const auto step = static_cast<std::int32_t>(old.step.step) + time * steps;
        SimTime inputs = computes ? state_.compute_inputs(old.rank, step) : state_.comm_inputs(old.rank, step);
        if (!computes && state_.comm(old.rank, step).kind == CommKind::receive) {
          const RankId from = state_.comm(old.rank, step).peer;
          const StepId send =
              state_.send_of(state_.comm_state(old.rank, static_cast<std::int32_t>(old.step.step)).message());
          const std::int32_t by = time * period_.comm[from.index()].steps;
          inputs = std::max(inputs, state_.comm_inputs(from, state_.comm_index(from, send) + by));
        }
        if (inputs != later(old.inputs_computed, time * period_.duration())) throw NotRepeated{};
      }
    }
  }

  // What is ahead of the rank now: the same as was ahead of it, later by as many steps.
  void reopen(RankId rank) {
    const RankProgram& program = state_.program.ranks[rank.index()];
    const ListPeriod& computes = period_.compute[rank.index()];
    const ListPeriod& comms = period_.comm[rank.index()];
    EngineState::Open& open = state_.open[rank.index()];
    std::int32_t& num_computed = state_.num_computed[rank.index()];
    for (std::int32_t i = num_computed; i < open.computes; ++i)
      state_.forget_edges(rank, state_.compute(rank, i).waits);
    for (std::int32_t i = comms.begin + comms.steps; i < open.comms; ++i)
      state_.forget_edges(rank, state_.comm(rank, i).waits);
    num_computed += times_ * computes.steps;
    state_.running[rank.index()] += times_ * computes.steps;
    open.computes = std::min(length_of(program.compute), open.computes + times_ * computes.steps);
    open.comms = std::min(length_of(program.comm), open.comms + times_ * comms.steps);
    open.place = first_place(program, open.computes, open.comms);
    for (std::int32_t i = num_computed; i < open.computes; ++i) {
      const bool runs = i == num_computed && i == state_.running[rank.index()];
      if ((state_.open_compute(rank, i).pending == 0) != runs) throw NotRepeated{};
    }
    for (std::int32_t i = comms.begin + (times_ + 1) * comms.steps; i < open.comms; ++i)
      reopen(rank, i);
  }

  void reopen(RankId rank, std::int32_t comm) {
    const EngineState::Opened opened = state_.open_comm(rank, comm);
    if (state_.has_finished(rank, {Wait::On::comm, comm})) {
      if (opened.pending > 0) throw NotRepeated{};
      return;
    }
    const StepState& state = state_.comm_state(rank, comm);
    if (!state.is_end()) {
      if (opened.pending == 0) throw NotRepeated{};
      return;
    }
    const MessageId message = state.message();
    const std::uint8_t& gate = state_.gates[message.index()];
    if (state.is_receive() && opened.pending == 0 && state_.open_gate(message, EngineState::receive_missing)) {
      state_.timeline.messages[message.index()].posted = opened.ready;
    }
    const std::uint8_t missing = state.is_send() ? EngineState::send_missing : EngineState::receive_missing;
    if (((gate & missing) == 0) != (opened.pending == 0)) throw NotRepeated{};
    if (gate == 0) all_open_.push_back(message);
  }

  // What lacks nothing any more is on its way or waits for the network.
  void require_gates() {
    const std::int32_t messages = times_ * period_.messages;
    std::vector<MessageId> begun;
    for (const MessageId told : on_their_way_) {
      const MessageId message(told.value + messages);
      begun.push_back(message);
      reopen_ends(told, message);
    }
    state_.arbiter.for_each_waiting([&](NicArbiter::Link, MessageLane, std::int64_t, std::int64_t message) {
      begun.push_back(MessageId(static_cast<std::int32_t>(message)));
    });
    std::sort(begun.begin(), begun.end());
    const auto has_begun = [&](MessageId message) { return std::binary_search(begun.begin(), begun.end(), message); };
    const auto is_open = [&](MessageId message) { return state_.gates[message.index()] == 0; };
    if (!std::all_of(begun.begin(), begun.end(), is_open) ||
        !std::all_of(all_open_.begin(), all_open_.end(), has_begun)) {
      throw NotRepeated{};
    }
  }

  // One end may have finished; when its inputs were computed is asked for when the other does.
  void reopen_ends(MessageId told, MessageId message) {
    const Transfer& transfer = state_.program.transfer_of(message);
    const bool forward = state_.program.messages[message.index()].direction == Direction::forward;
    const RankId from = forward ? transfer.from : transfer.to;
    const RankId to = forward ? transfer.to : transfer.from;
    const std::int32_t send = state_.comm_index(from, state_.send_of(told));
    const std::int32_t receive = state_.comm_index(to, state_.receive_of(told));
    const auto has_all = [&](RankId rank, std::int32_t step) {
      return state_.open_comm(rank, step + times_ * period_.comm[rank.index()].steps).pending == 0;
    };
    if (!has_all(from, send) || !has_all(to, receive)) throw NotRepeated{};
  }

  EngineState& state_;
  const Period& period_;
  const std::int32_t times_;
  std::vector<ListPeriod> started_;             // [rank] computations, from begin to end
  std::vector<std::vector<CommEvents>> comms_;  // [rank]
  std::vector<MessageEvents> messages_;
  std::vector<OldInputs> old_;
  std::vector<MessageId> on_their_way_;  // at the period's end
  std::vector<MessageId> all_open_;      // later, of those that are open and have not arrived
  std::int64_t num_finished_ = 0;        // steps

  // What is being told: for the time_-th time, so much later.
  std::int32_t time_ = 0;
  SimTime by_{0};
};

}  // namespace

std::int64_t repeat(EngineState& state, const Period& period, std::int32_t times) {
  return Repetition(state, period, times).tell();
}

}  // namespace plumb
