// SPDX-License-Identifier: Apache-2.0
//
// step_log.hpp: when everything of one step happened on one rank, in memory that is laid out before the step.
//
// An observer of the executor that writes down times: per computation its start and end, per message when it was posted
// here, when it began to move (if the transport can tell) and when it was sent or had arrived. It is NOT a profile (no
// sums, no costs) and it keeps one step: write it out or copy it between steps. event_log.hpp writes it to a file. Two
// clock readings and a few stores per step of the program; nothing is allocated in a step. Times: nanoseconds of the
// clock, which on one machine is the same for all processes. Threads: as StepObserver; begin(), end() and record()
// while the executor is idle; a Spot may be read at any time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plumb/comm/emulated_links.hpp"
#include "plumb/runtime/clock.hpp"
#include "plumb/runtime/observer.hpp"

namespace plumb {

struct StepRecord {
  struct Computation {
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
  };
  struct MessageEnd {
    std::int64_t posted_ns = 0;
    std::int64_t started_ns = 0;  // 0: not known
    std::int64_t finished_ns = 0;
  };
  std::int64_t step = 0;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::vector<Computation> compute;  // like RankProgram::compute
  std::vector<MessageEnd> comm;      // like RankProgram::comm; sums and zeroes stay 0
};

// For the way from rank to rank. Of one machine's byte order; throws InputError when the bytes are no record.
std::string to_bytes(const StepRecord& record);
StepRecord record_from_bytes(std::string_view bytes);

class StepLog final : public StepObserver {
 public:
  // What the rank computes right now, for whoever looks for the cause of a stall. All zeroes is a legal beginning, so
  // it may lie in memory that processes share.
  struct Spot {
    std::atomic<std::int32_t> compute{0};           // index into RankProgram::compute: running, or next
    std::atomic<std::int64_t> running_since_ns{0};  // 0: it waits
  };

  // `wire` tells of the message that is reported finished when it started to move; both may be null.
  explicit StepLog(RankId rank, std::shared_ptr<const Clock> clock = nullptr, const WireTimes* wire = nullptr,
                   Spot* spot = nullptr);

  // Makes room; must have been called for a program before its first begin(). `program` must outlive the log.
  void expect(const Program& program);
  void begin(const Program& program, std::int64_t step);
  void end();
  const StepRecord& record() const { return record_; }

  void compute_starting(RankId rank, const Compute& compute) override;
  void compute_finished(RankId rank, const Compute& compute) override;
  void message_starting(RankId rank, const MessageEvent& event) override;
  void message_finished(RankId rank, const MessageEvent& event) override;

 private:
  // [message]: its step in RankProgram::comm on this rank, -1 elsewhere.
  struct Places {
    const Program* program = nullptr;
    std::vector<std::int32_t> of_message;
  };

  std::int64_t now() const { return clock_->now().count(); }
  StepRecord::MessageEnd& end_of(const MessageEvent& event) {
    return record_.comm[static_cast<std::size_t>(places_->of_message[event.message.index()])];
  }

  RankId rank_;
  std::shared_ptr<const Clock> clock_;
  const WireTimes* wire_;
  std::vector<std::unique_ptr<Places>> programs_;
  const Places* places_ = nullptr;
  StepRecord record_;
  std::size_t num_computed_ = 0;
  Spot own_spot_;
  Spot& spot_;
};

}  // namespace plumb
