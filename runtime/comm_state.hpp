// SPDX-License-Identifier: Apache-2.0
//
// comm_state.hpp (private): the communication half of a rank's step machine.
//
// It walks the rank's channel queues, posts whatever stands at the head of its queue with all waits satisfied, adds
// arrived gradient sums, and knows how far the compute list may run. It never waits and never chooses: what is postable
// is posted, so the program stays a Kahn network. Who calls it (a worker thread over a Transport, or one thread for all
// ranks) and how messages move (MessagePort) is none of its business. Not thread-safe: the communication worker's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "rank_plan.hpp"
#include "step_memory.hpp"

namespace plumb {

class MessagePort {
 public:
  MessagePort() = default;
  MessagePort(const MessagePort&) = delete;
  MessagePort& operator=(const MessagePort&) = delete;
  virtual ~MessagePort() = default;
  // Starts the send or receive; message_finished() tells when it is over. Must not wait.
  virtual void post(std::int32_t comm) = 0;
};

class CommState {
 public:
  CommState(const RankPlan& plan, StepMemory& memory, MessagePort& port);

  // Before a step.
  void reset();

  // The first `count` compute steps have finished. True if that was news.
  bool computed(std::size_t count);

  // Posts what can be posted, urgent first, and does at most a slice of one add. Bulk messages let those adds go first
  // that an urgent message or a computation waits for: once on the wire, a bulk message would hold back what is ready
  // a moment later. True if anything was done.
  bool advance();

  void message_finished(std::int32_t comm);

  // Compute steps [0, runnable()) have all the arrivals and sums they wait for.
  std::size_t runnable() const { return runnable_; }
  bool finished() const { return num_done_ == plan_.num_comm(); }
  std::size_t num_done() const { return num_done_; }

  // What a stuck rank waits for: the posted message, or the unfinished compute step, at the root of the waits of
  // compute step `compute` (or, if that is past the end, of the first unfinished communication step).
  struct Blocker {
    bool comm = false;
    std::int32_t step = 0;
  };
  std::optional<Blocker> blocker(std::size_t compute) const;

 private:
  void satisfied(std::int32_t comm);
  void done(std::int32_t comm);
  void enqueue(std::int32_t channel);
  void post(std::int32_t channel);
  bool post_all(MessageLane lane);
  // Adds and zeros whose waits are satisfied, in the order it happened.
  struct SumQueue {
    std::vector<std::int32_t> steps;
    std::size_t next = 0;
    std::size_t offset = 0;  // elements of steps[next] already done
  };
  void find_pressing();
  bool work_on_sums(SumQueue& queue);
  void begin_sum(std::int32_t comm);
  Blocker root_of(std::int32_t comm) const;

  const RankPlan& plan_;
  StepMemory& memory_;
  MessagePort& port_;

  std::vector<std::int32_t> waits_left_;          // [comm]
  std::vector<std::int32_t> compute_waits_left_;  // [compute]: communication steps only
  std::vector<std::uint8_t> done_;                // [comm]
  std::vector<std::size_t> next_in_channel_;      // [channel]: queue position of its head
  std::vector<std::int32_t> postable_[2];         // [lane]: channels whose head may be posted
  std::vector<std::uint8_t> pressing_;            // [comm]: a sum that an urgent message or a computation waits for
  SumQueue pressing_sums_;
  SumQueue other_sums_;
  std::size_t num_computed_ = 0;
  std::size_t runnable_ = 0;
  std::size_t num_done_ = 0;
};

}  // namespace plumb
