// SPDX-License-Identifier: Apache-2.0
#include "step_words.hpp"

#include <fmt/format.h>

namespace plumb {

std::string comm_action(const RankPlan& plan, std::int32_t comm) {
  const Program& program = *plan.program;
  const CommStep& step = plan.steps().comm[static_cast<std::size_t>(comm)];
  const int microbatch = plan.microbatch_of_comm[static_cast<std::size_t>(comm)].value;
  if (step.kind == CommKind::add || step.kind == CommKind::zero) {
    return fmt::format("{} of block {}, microbatch {}", step.kind == CommKind::add ? "add" : "zero",
                       program.routing.holdings[step.holding.index()].block.value, microbatch);
  }
  const Transfer& transfer = program.transfer_of(step.message);
  const bool forward = program.messages[step.message.index()].direction == Direction::forward;
  const bool sends = step.kind == CommKind::send;
  const ChunkId chunk = sends == forward ? transfer.from_chunk : transfer.to_chunk;
  return fmt::format("{}{}_{}{}", chunk.value, sends ? "SEND" : "RECV", forward ? 'F' : 'B', microbatch);
}

std::string comm_sentence(const RankPlan& plan, std::int32_t comm) {
  const Program& program = *plan.program;
  const CommStep& step = plan.steps().comm[static_cast<std::size_t>(comm)];
  std::string text = comm_action(plan, comm);
  if (step.kind == CommKind::add || step.kind == CommKind::zero) return text;
  const Transfer& transfer = program.transfer_of(step.message);
  std::string content = transfer.partial ? "partial" : "";
  if (!transfer.holdings.empty()) {
    content += transfer.partial ? " and blocks" : "blocks";
    for (const HoldingId id : transfer.holdings) {
      content += fmt::format(" {}", program.routing.holdings[id.index()].block.value);
    }
  }
  return fmt::format("{} {} rank {} ({}, {})", text, step.kind == CommKind::send ? "to" : "from", step.peer.value,
                     content, step.lane == MessageLane::urgent ? "urgent" : "bulk");
}

std::string compute_action(const RankPlan& plan, std::size_t compute) {
  return to_string(plan.steps().compute[compute].compute);
}

}  // namespace plumb
