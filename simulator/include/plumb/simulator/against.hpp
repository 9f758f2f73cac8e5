// SPDX-License-Identifier: Apache-2.0
//
// against.hpp: a measured step beside the simulated one: where they part.
//
// The measured step comes from an event log (docs/event-log.md) of the very same program; the digest says so. Each
// action's and message's `lag` is how much later it was than predicted; `added` is how much of that is new since what
// came before it: the previous action of the rank and the inputs. So a delay is blamed once, where it arose, and not
// on everything that came after. Plain data; pure functions.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

struct MeasuredLog {
  std::string made_by;
  std::vector<std::int64_t> numbers;  // [step] as the log counts them
  std::vector<Timeline> steps;
};

// Throws InputError with the line: no log, another program (by its digest), a step that is not complete.
MeasuredLog read_event_log(std::istream& in, std::string_view name, const Program& program);

// The step whose length is in the middle.
std::size_t median_step(const MeasuredLog& log);

struct ActionAgainst {
  RankId rank;
  Compute action;
  SimTime predicted_start{0};
  SimTime measured_start{0};
  SimTime predicted_time{0};
  SimTime measured_time{0};
  SimTime added{0};  // of the delay at its end
  SimTime lag() const { return measured_start - predicted_start; }
};

struct TransferAgainst {
  MessageId message;
  RankId from;
  RankId to;
  std::string action;  // of the sender: "3SEND_F2"
  SimTime predicted_arrival{0};
  SimTime measured_arrival{0};
  SimTime predicted_queue{0};  // ready at both ends, not started
  SimTime measured_queue{0};
  SimTime predicted_wire{0};  // start to arrival
  SimTime measured_wire{0};
  SimTime added{0};  // queue and wire together, beyond the predicted
  SimTime lag() const { return measured_arrival - predicted_arrival; }
};

struct Against {
  SimTime predicted_step{0};
  SimTime measured_step{0};
  std::vector<ActionAgainst> actions;      // rank by rank, in the order of each
  std::vector<TransferAgainst> transfers;  // like Program::messages
  double difference() const;               // of the steps, as a share of the predicted
};

// The step as it would have been had every action and every message taken the least that it took in any of these steps
// of the program: what is left when the machine's other business is taken out of a measurement. Times of messages count
// from both ends being ready, and none waits for another. Throws InputError when there is no step.
Timeline undisturbed(const Program& program, std::span<const Timeline> steps);

Against compare_against(const Program& program, const Timeline& predicted, const Timeline& measured);

}  // namespace plumb
