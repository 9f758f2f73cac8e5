// SPDX-License-Identifier: Apache-2.0
//
// engine_state.hpp (private): all that a simulation knows at an instant, and that decides how it goes on.
#pragma once

#include <cstdint>
#include <vector>

#include "channel_order.hpp"
#include "plumb/cache/arbiter.hpp"
#include "plumb/cache/event_queue.hpp"
#include "plumb/simulator/timeline.hpp"
#include "program_cut.hpp"
#include "step_graph.hpp"

namespace plumb {

// What will happen at a known time. Two events of one instant commute, so ties need no rule.
struct SimEvent {
  enum class Kind : std::uint8_t { computed, sent, arrived, send_noticed, arrival_noticed };
  Kind kind = Kind::computed;
  std::int32_t index = 0;  // computed: rank; others: message
};

// All that is asked of a step again and again, side by side: twice its message, plus one at the receiver.
struct StepState {
  static constexpr std::int32_t computes = -1;
  static constexpr std::int32_t local = -2;  // adds or zeroes

  SimTime inputs_computed{0};  // when the last computation behind what it waited for had ended
  std::int32_t pending = 0;    // events still to come
  std::int32_t subject = computes;
};

struct EngineState {
  // comm_done of a communication step that has not finished.
  static constexpr SimTime unfinished{-1};

  EngineState(const Program& the_program, const ProgramCut& the_cut, ChannelOrder order, Duplex duplex)
      : program(the_program),
        cut(the_cut),
        graph(program, cut),
        channels(program, cut, order),
        arbiter(program.layout.pp(), duplex),
        states(graph.num_steps()),
        gates(channels.gates()),
        running(program.ranks.size()) {}

  const ComputeStep& compute(RankId rank, std::int32_t index) const {
    const std::int32_t original = cut.compute[rank.index()].original(index);
    return program.ranks[rank.index()].compute[static_cast<std::size_t>(original)];
  }
  const CommStep& comm(RankId rank, std::int32_t index) const {
    const std::int32_t original = cut.comm[rank.index()].original(index);
    return program.ranks[rank.index()].comm[static_cast<std::size_t>(original)];
  }
  const Message& message(MessageId id) const {
    return program.messages[static_cast<std::size_t>(cut.messages.original(id.value))];
  }

  const Program& program;
  const ProgramCut& cut;
  const StepGraph graph;
  const ChannelOrders channels;
  NicArbiter arbiter;
  std::vector<StepState> states;      // [step]
  std::vector<std::uint8_t> gates;    // [message] send ready, receive posted, predecessors on the channel started
  std::vector<std::int32_t> running;  // [rank] index of its current computation, or its last one
  EventQueue<SimEvent> events;
  SimTime now{0};
  Timeline timeline;  // of what the cut leaves
};

}  // namespace plumb
