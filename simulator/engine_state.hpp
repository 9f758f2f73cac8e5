// SPDX-License-Identifier: Apache-2.0
//
// engine_state.hpp (private): all that a simulation knows at an instant, and that decides how it goes on.
//
// A step is opened before it can become ready: only then it is known how many of the events it waits for are still to
// come, and who is to be told of them. What never needs to be opened costs no memory; a simulation that repeats itself
// opens a small part of its program. Steps are opened in the rank's order; messages get their ends so.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "channel_order.hpp"
#include "period.hpp"
#include "plumb/cache/arbiter.hpp"
#include "plumb/cache/event_queue.hpp"
#include "plumb/simulator/timeline.hpp"
#include "step_graph.hpp"
#include "zeroed_array.hpp"

namespace plumb {

// What will happen at a known time. Two events of one instant commute, so ties need no rule.
struct SimEvent {
  enum class Kind : std::uint8_t { computed, sent, arrived, send_noticed, arrival_noticed };
  Kind kind = Kind::computed;
  std::int32_t index = 0;  // computed: rank; others: message

  bool is_of_message() const { return kind != Kind::computed; }
};

// All that is asked of a step again and again, side by side.
struct StepState {
  static constexpr std::int32_t local = -1;  // a computation, an add or a zero

  SimTime inputs_computed{0};    // when the last computation behind what it waited for had ended
  std::uint32_t first_edge = 0;  // to the steps that wait for it
  std::int32_t pending = 0;      // events still to come
  std::int32_t subject = local;  // of an end twice its message, plus one at the receiver

  bool is_end() const { return subject >= 0; }
  bool is_send() const { return is_end() && subject % 2 == 0; }
  bool is_receive() const { return is_end() && subject % 2 != 0; }
  MessageId message() const { return MessageId(subject / 2); }  // REQUIRES is_end()
};

// Nothing where a step became ready before it was opened, or where the program is not what it should be; who simulates
// it step by step knows.
struct NotOpened {};

class EngineState {
 public:
  // comm_done of a communication step that has not finished.
  static constexpr SimTime unfinished{-1};
  static constexpr SimTime max_step{std::int64_t{1} << 62};
  // What a message lacks before it may start: these, and four times the number of messages that must start before it.
  static constexpr std::uint8_t send_missing = 1;
  static constexpr std::uint8_t receive_missing = 2;
  static constexpr std::uint8_t one_before = 4;

  struct Edge {
    StepId waiter{};
    std::uint32_t next = 0;  // edge to the same step; 0: none
  };
  // Steps that are open, of a rank: the first so many of each list.
  struct Open {
    std::int32_t computes = 0;
    std::int32_t comms = 0;
    std::int32_t place = 0;  // in the rank's order, at or before the first that is not open
  };
  struct Opened {
    StepId step{};
    std::int32_t pending = 0;
    SimTime ready{0};  // if nothing is pending: since when
  };
  // Both steps, zero where not open yet: counted from 1.
  struct Ends {
    std::int32_t send = 0;
    std::int32_t receive = 0;
  };
  // A period that was told again, from `begin` to `end`.
  struct Told {
    SimTime begin{0};
    SimTime end{0};
    SimTime duration{0};
    std::vector<std::int32_t> comms;  // [rank] steps of a period
  };

  EngineState(const Program& the_program, ChannelOrder order, Duplex duplex);

  std::size_t num_steps() const { return num_steps_; }
  StepId compute_id(RankId rank, std::int32_t index) const { return StepId(first_compute_[rank.index()] + index); }
  StepId comm_id(RankId rank, std::int32_t index) const { return StepId(first_comm_[rank.index()] + index); }
  StepId step_id(RankId rank, Wait wait) const {
    const auto index = static_cast<std::int32_t>(wait.step);
    return wait.on == Wait::On::compute ? compute_id(rank, index) : comm_id(rank, index);
  }
  bool is_compute(RankId rank, StepId step) const { return step.value < first_comm_[rank.index()]; }
  std::int32_t compute_index(RankId rank, StepId step) const { return step.value - first_compute_[rank.index()]; }
  std::int32_t comm_index(RankId rank, StepId step) const { return step.value - first_comm_[rank.index()]; }
  const StepState& compute_state(RankId rank, std::int32_t i) const { return states[compute_id(rank, i).index()]; }
  const StepState& comm_state(RankId rank, std::int32_t i) const { return states[comm_id(rank, i).index()]; }
  const ComputeStep& compute(RankId rank, std::int32_t index) const {
    return program.ranks[rank.index()].compute[static_cast<std::size_t>(index)];
  }
  const CommStep& comm(RankId rank, std::int32_t index) const {
    return program.ranks[rank.index()].comm[static_cast<std::size_t>(index)];
  }
  StepId send_of(MessageId message) const { return StepId(ends[message.index()].send - 1); }
  StepId receive_of(MessageId message) const { return StepId(ends[message.index()].receive - 1); }

  bool has_finished(RankId rank, Wait wait) const {
    const auto step = static_cast<std::int32_t>(wait.step);
    if (wait.on == Wait::On::compute) return step < num_computed[rank.index()];
    return timeline.ranks[rank.index()].comm_done[wait.step] != unfinished;
  }
  // False if the message did not lack it: then something is wrong.
  bool open_gate(MessageId message, std::uint8_t gate) {
    std::uint8_t& missing = gates[message.index()];
    if (gate == one_before ? missing < one_before : (missing & gate) == 0) return false;
    missing = static_cast<std::uint8_t>(missing - gate);
    return true;
  }
  // When the last computation behind a message ended, or behind a step that has finished. Throws NotOpened if an end is
  // not open.
  SimTime computed(MessageId message) const {
    if (ends[message.index()].send == 0 || ends[message.index()].receive == 0) throw NotOpened{};
    return std::max(states[send_of(message).index()].inputs_computed,
                    states[receive_of(message).index()].inputs_computed);
  }
  SimTime computed(RankId rank, Wait finished) const;
  // The same behind all that a step waited for. REQUIRES that all of it has finished.
  SimTime compute_inputs(RankId rank, std::int32_t index) const;
  SimTime comm_inputs(RankId rank, std::int32_t index) const;

  // visit(waiter) of all open steps that wait for this one, but for the next computation.
  template <class Visit>
  void for_each_waiter(StepId step, Visit&& visit) const {
    for (std::uint32_t edge = states[step.index()].first_edge; edge != 0; edge = edges_[edge].next)
      visit(edges_[edge].waiter);
  }

  // visit(Opened) of the rank's next step in its order. False if none is left. Throws NotOpened.
  template <class Visit>
  bool open_next(RankId rank, Visit&& visit);
  // Knows anew what the step waits for. Its former edges must be gone.
  Opened open_compute(RankId rank, std::int32_t index);
  Opened open_comm(RankId rank, std::int32_t index);
  // Nobody is told any more of what is waited for there.
  void forget_edges(RankId rank, Range waits);

  const Program& program;
  const ChannelOrders channels;
  NicArbiter arbiter;
  ZeroedArray<StepState> states;           // [step]
  ZeroedArray<Ends> ends;                  // [message]
  std::vector<std::uint8_t> gates;         // [message] what it lacks
  std::vector<std::int32_t> running;       // [rank] index of its current computation, or its last one
  std::vector<std::int32_t> num_computed;  // [rank]
  std::vector<Open> open;                  // [rank]
  EventQueue<SimEvent> events;
  SimTime now{0};
  std::size_t num_finished = 0;  // steps
  std::size_t num_started = 0;   // messages
  std::vector<Told> told;
  Timeline timeline;

 private:
  Opened open_step(RankId rank, StepId step, Range waits);
  SimTime last_computed(RankId rank, Range waits) const;

  std::size_t num_steps_ = 0;
  std::vector<std::int32_t> first_compute_;  // [rank]
  std::vector<std::int32_t> first_comm_;
  std::vector<std::size_t> first_edge_;  // [rank] number of the edge of its first wait
  ZeroedArray<Edge> edges_;
};

template <class Visit>
bool EngineState::open_next(RankId rank, Visit&& visit) {
  const std::vector<StepRef>& order = program.ranks[rank.index()].order;
  Open& here = open[rank.index()];
  while (static_cast<std::size_t>(here.place) < order.size()) {
    const StepRef next = order[static_cast<std::size_t>(here.place++)];
    std::int32_t& count = next.comm ? here.comms : here.computes;
    const auto index = static_cast<std::int32_t>(next.index);
    if (index < count) continue;
    if (index > count) throw NotOpened{};
    ++count;
    visit(next.comm ? open_comm(rank, index) : open_compute(rank, index));
    return true;
  }
  return false;
}

}  // namespace plumb
