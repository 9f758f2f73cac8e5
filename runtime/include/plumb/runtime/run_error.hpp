// SPDX-License-Identifier: Apache-2.0
//
// run_error.hpp: how a step fails when the fault is not in this rank's Stage.
//
// Each is one line for people, "rank 1, 3F2: ...", with the same facts as plain fields. An exception of a Stage is not
// among them: it leaves the executor as it came. After any of these but PlanMismatch the data of the step are
// undefined, the transport has been failed so that the other ranks end too, and the executor refuses further steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "plumb/schedule/ids.hpp"

namespace plumb {

enum class RunErrorKind : std::uint8_t {
  peer,      // another rank failed first or is gone
  timeout,   // a wait passed its limit
  protocol,  // ranks, program and data do not fit each other
  net        // the transport's substrate reported an error of its own
};

const char* to_text(RunErrorKind kind) noexcept;  // "peer", "timeout", "protocol", "net"

class RunError : public std::runtime_error {
 public:
  RunError(RunErrorKind kind, RankId rank, std::string action, const std::string& text);

  RunErrorKind kind() const noexcept { return kind_; }
  // The rank that noticed.
  RankId rank() const noexcept { return rank_; }
  // What the rank was doing or waited to do: "3F2", "3RECV_F2", "add of block 2 for microbatch 0"; empty before a step.
  const std::string& action() const noexcept { return action_; }

 private:
  RunErrorKind kind_;
  RankId rank_;
  std::string action_;
};

// The transport failed under a step: another rank ended, or the network did. kind peer or net.
class PeerError : public RunError {
 public:
  PeerError(RunErrorKind kind, RankId rank, std::string action, std::optional<RankId> peer, const std::string& text);
  std::optional<RankId> peer() const noexcept { return peer_; }

 private:
  std::optional<RankId> peer_;
};

// A wait passed its limit.
class StallError : public RunError {
 public:
  StallError(RankId rank, std::string action, std::string waited_for, std::optional<RankId> peer,
             std::chrono::nanoseconds waited);
  // The unfinished step at the root of the wait: "3RECV_F2 from rank 0 (...)".
  const std::string& waited_for() const noexcept { return waited_for_; }
  std::optional<RankId> peer() const noexcept { return peer_; }

 private:
  std::string waited_for_;
  std::optional<RankId> peer_;
};

// Ranks prepared different programs, shapes or options. Nothing was sent.
class PlanMismatch : public RunError {
 public:
  // `odd` runs `odd_value` where `rank` (or, if `rank` is the odd one, most of the others) runs `value`.
  PlanMismatch(RankId rank, RankId odd, std::string field, std::string value, std::string odd_value);
  RankId odd() const noexcept { return odd_; }
  const std::string& field() const noexcept { return field_; }
  const std::string& value() const noexcept { return value_; }
  const std::string& odd_value() const noexcept { return odd_value_; }

 private:
  RankId odd_;
  std::string field_;
  std::string value_;
  std::string odd_value_;
};

// The gradient of a block was about to leave or be used with too few or too many contributions in it.
class ContributionError : public RunError {
 public:
  ContributionError(RankId rank, std::string action, BlockId block, Microbatch microbatch, int expected, int counted);
  BlockId block() const noexcept { return block_; }
  Microbatch microbatch() const noexcept { return microbatch_; }
  int expected() const noexcept { return expected_; }
  int counted() const noexcept { return counted_; }

 private:
  BlockId block_;
  Microbatch microbatch_;
  int expected_;
  int counted_;
};

// A slot holds something else than what the step is about to read, or is not free although it is about to be written.
class SlotError : public RunError {
 public:
  SlotError(RankId rank, std::string action, const std::string& text);
};

// A message is not the one that the program expects next on its channel (another size, or its trailer differs).
class MessageMismatch : public RunError {
 public:
  MessageMismatch(RankId rank, std::string action, RankId peer, const std::string& text);
  RankId peer() const noexcept { return peer_; }

 private:
  RankId peer_;
};

}  // namespace plumb
