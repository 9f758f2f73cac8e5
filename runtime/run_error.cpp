// SPDX-License-Identifier: Apache-2.0
#include "plumb/runtime/run_error.hpp"

#include <utility>

#include <fmt/format.h>

namespace plumb {
namespace {

std::string line(RankId rank, const std::string& action, const std::string& text) {
  if (action.empty()) return fmt::format("rank {}: {}", rank.value, text);
  return fmt::format("rank {}, {}: {}", rank.value, action, text);
}

double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

const char* to_text(RunErrorKind kind) noexcept {
  switch (kind) {
    case RunErrorKind::peer:
      return "peer";
    case RunErrorKind::timeout:
      return "timeout";
    case RunErrorKind::protocol:
      return "protocol";
    case RunErrorKind::net:
      return "net";
  }
  return "unknown";
}

RunError::RunError(RunErrorKind kind, RankId rank, std::string action, const std::string& text)
    : std::runtime_error(line(rank, action, text)), kind_(kind), rank_(rank), action_(std::move(action)) {}

PeerError::PeerError(RunErrorKind kind, RankId rank, std::string action, std::optional<RankId> peer,
                     const std::string& text)
    : RunError(kind, rank, std::move(action), text), peer_(peer) {}

StallError::StallError(RankId rank, std::string action, std::string waited_for, std::optional<RankId> peer,
                       std::chrono::nanoseconds waited)
    : RunError(RunErrorKind::timeout, rank, std::move(action),
               fmt::format("waited {:.1f} s for {}", seconds(waited), waited_for)),
      waited_for_(std::move(waited_for)),
      peer_(peer) {}

PlanMismatch::PlanMismatch(RankId rank, RankId odd, std::string field, std::string value, std::string odd_value)
    : RunError(RunErrorKind::protocol, rank, "",
               fmt::format("the ranks do not run the same program: {} is {} on rank {} but {} elsewhere", field,
                           odd_value, odd.value, value)),
      odd_(odd),
      field_(std::move(field)),
      value_(std::move(value)),
      odd_value_(std::move(odd_value)) {}

ContributionError::ContributionError(RankId rank, std::string action, BlockId block, Microbatch microbatch,
                                     int expected, int counted)
    : RunError(RunErrorKind::protocol, rank, std::move(action),
               fmt::format("the gradient of block {} for microbatch {} has {} contributions instead of {}", block.value,
                           microbatch.value, counted, expected)),
      block_(block),
      microbatch_(microbatch),
      expected_(expected),
      counted_(counted) {}

SlotError::SlotError(RankId rank, std::string action, const std::string& text)
    : RunError(RunErrorKind::protocol, rank, std::move(action), text) {}

MessageMismatch::MessageMismatch(RankId rank, std::string action, RankId peer, const std::string& text)
    : RunError(RunErrorKind::protocol, rank, std::move(action), text), peer_(peer) {}

}  // namespace plumb
