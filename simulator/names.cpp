// SPDX-License-Identifier: Apache-2.0
#include "names.hpp"

#include <fmt/format.h>

namespace plumb {

std::string message_name(const Program& program, MessageId message, bool sending) {
  const Message& what = program.messages[message.index()];
  const Transfer& transfer = program.transfer_of(message);
  const bool forward = what.direction == Direction::forward;
  const ChunkId chunk = forward == sending ? transfer.from_chunk : transfer.to_chunk;
  return fmt::format("{}{}_{}{}", chunk.value, sending ? "SEND" : "RECV", forward ? 'F' : 'B', what.microbatch.value);
}

std::string step_name(const Program& program, RankId rank, Wait step) {
  const RankProgram& rank_program = program.ranks[rank.index()];
  const auto index = static_cast<std::size_t>(step.step);
  if (step.on == Wait::On::compute) return to_string(rank_program.compute[index].compute);
  const CommStep& comm = rank_program.comm[index];
  switch (comm.kind) {
    case CommKind::send:
      return fmt::format("{} to rank {}", message_name(program, comm.message, true), comm.peer.value);
    case CommKind::receive:
      return fmt::format("{} from rank {}", message_name(program, comm.message, false), comm.peer.value);
    case CommKind::add:
    case CommKind::zero:
      break;
  }
  const BlockId block = program.routing.holdings[comm.holding.index()].block;
  return fmt::format("{} the gradient of b{}", comm.kind == CommKind::add ? "adding to" : "zeroing", block.value);
}

}  // namespace plumb
