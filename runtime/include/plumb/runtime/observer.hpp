// SPDX-License-Identifier: Apache-2.0
//
// observer.hpp: told what the executor does, as it does it. For logs, pictures and tests; results never depend on it.
//
// The two "starting" calls come before anything happens and may delay it. Nothing is measured here: whoever wants times
// reads a clock. Exceptions end the step like those of a Stage. Threads: compute_* come one at a time from the thread
// that runs the executor; message_* come one at a time from that thread or from the executor's own and may overlap
// compute_*, so an observer of both locks what they share. An interpreter makes all calls from its one thread.
#pragma once

#include <cstdint>

#include "plumb/cache/program.hpp"

namespace plumb {

struct MessageEvent {
  MessageId message;
  Message what;  // transfer, microbatch, direction
  RankId peer;
  MessageLane lane = MessageLane::urgent;
  bool sends = false;  // this rank is the sender
};

class StepObserver {
 public:
  StepObserver() = default;
  StepObserver(const StepObserver&) = delete;
  StepObserver& operator=(const StepObserver&) = delete;
  virtual ~StepObserver() = default;

  virtual void compute_starting(RankId, const Compute&) {}
  virtual void compute_finished(RankId, const Compute&) {}
  virtual void message_starting(RankId, const MessageEvent&) {}  // about to be posted
  virtual void message_finished(RankId, const MessageEvent&) {}  // sent, or arrived
};

}  // namespace plumb
