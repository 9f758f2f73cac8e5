// SPDX-License-Identifier: Apache-2.0
//
// comm_action.hpp: one communication of a rank, as torch.distributed.pipelining's compute+comms CSV spells it.
//
// The chunk is the rank's own: "3SEND_F1" sends what 3F1 made to the rank of chunk 4, "4RECV_F1" receives it there;
// "4SEND_B1" sends what 4B1 (or 4I1) made to the rank of chunk 3, "3RECV_B1" receives it. One message per hop: a
// transfer past the next chunk has no such token. UNSHARD, RESHARD and REDUCE_GRAD concern a chunk's parameters and
// carry no microbatch. Plain data.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "plumb/schedule/ids.hpp"

namespace plumb {

enum class CommOp : std::uint8_t {
  send_forward,
  receive_forward,
  send_backward,
  receive_backward,
  unshard,
  reshard,
  reduce_grad
};

inline constexpr std::array<CommOp, 7> all_comm_ops = {
    CommOp::send_forward, CommOp::receive_forward, CommOp::send_backward, CommOp::receive_backward,
    CommOp::unshard,      CommOp::reshard,         CommOp::reduce_grad};

std::string_view to_string(CommOp op);  // "SEND_F"

// True for the four sends and receives, which have a peer and a microbatch.
bool moves_data(CommOp op);

struct CommAction {
  CommOp op = CommOp::send_forward;
  ChunkId chunk;
  Microbatch microbatch;  // 0 where the op carries none
  friend constexpr auto operator<=>(const CommAction&, const CommAction&) = default;
};

std::string to_string(const CommAction& action);  // "0SEND_F1", "3UNSHARD"

}  // namespace plumb
