// SPDX-License-Identifier: Apache-2.0
#include "verify_names.hpp"

#include <fmt/format.h>

namespace plumb {
namespace {

std::string message_token(const Program& program, const CommStep& step) {
  const Message& message = program.messages[step.message.index()];
  const Transfer& transfer = program.transfer_of(step.message);
  const bool forward = message.direction == Direction::forward;
  const bool send = step.kind == CommKind::send;
  // The chunk at this end: forward the sender is `from`, backward it is `to`.
  const ChunkId here = forward == send ? transfer.from_chunk : transfer.to_chunk;
  const ChunkId there = forward == send ? transfer.to_chunk : transfer.from_chunk;
  std::string token =
      fmt::format("{}{}_{}{}", here.value, send ? "SEND" : "RECV", forward ? 'F' : 'B', message.microbatch.value);
  if (transfer.to_chunk != transfer.from_chunk.next()) {
    token += fmt::format(" {} chunk {}", send ? "to" : "from", there.value);
  } else if (transfer.lane == MessageLane::bulk) {
    token += " bulk";
  }
  return token;
}

}  // namespace

std::string step_token(const Program& program, RankId rank, StepRef step) {
  const RankProgram& rank_program = program.ranks[rank.index()];
  if (!step.comm) return to_string(rank_program.compute[static_cast<std::size_t>(step.index)].compute);
  const CommStep& comm = rank_program.comm[static_cast<std::size_t>(step.index)];
  if (comm.kind == CommKind::send || comm.kind == CommKind::receive) return message_token(program, comm);
  const Holding& holding = program.routing.holdings[comm.holding.index()];
  const std::int32_t microbatch = program.messages[comm.message.index()].microbatch.value;
  if (comm.kind == CommKind::zero) return fmt::format("zero b_{} of microbatch {}", holding.block.value, microbatch);
  return fmt::format("add b_{} from rank {} of microbatch {}", holding.block.value, holding.rank.value, microbatch);
}

}  // namespace plumb
