// SPDX-License-Identifier: Apache-2.0
//
// deadlock.hpp: can this program deadlock? Decided by one order of all messages or by one untimed run.
//
// A static program over ordered channels with blocking matches is a Kahn network: if one run finishes, all do, whatever
// the times. Where the ranks' lists all follow one order of the messages no run is needed: such a program finishes
// under every model (docs/lowering.md), and whether it is one is looked up, not believed. The checker shares no code
// with lowering and trusts nothing in the program: it also compares the two ends of every message, counts gradient
// contributions, and follows every slot to see that no two occupants overlap.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plumb/cache/program.hpp"

namespace plumb {

enum class ChannelModel : std::uint8_t {
  buffered,       // sends never wait; a receive matches by (transfer, microbatch, direction)
  fifo_per_edge,  // rendezvous, posts do not block; one FIFO per (from chunk, to chunk, direction) and lane
  fifo_per_pair,  // one FIFO per ordered pair of ranks
  shared_fifo,    // one FIFO per unordered pair, both directions
  single_stream,  // one communication FIFO per rank; neighbouring operations between two computes form one group
  rendezvous      // a rank stops at each send or receive until its partner reaches it
};

std::string_view to_string(ChannelModel model);
ChannelModel parse_channel_model(std::string_view text);  // throws InputError with the list
std::vector<ChannelModel> all_channel_models();

struct BlockedStep {
  RankId rank;
  std::string action;  // torch's token where there is one: "0SEND_F1", "3B2", else "add ..." in words
};

struct DeadlockReport {
  ChannelModel model = ChannelModel::buffered;
  bool deadlock = false;
  bool unmatched = false;          // not a cycle: the one step listed waits for a message that nobody sends or takes
  std::vector<BlockedStep> cycle;  // each waits for the next, the last for the first
};

// A message whose partner never comes is reported as `unmatched`. Messages match by their place in the channel
// (buffered: by what they are); whether they carry what the receiver expects is verify_program's to say. Linear in the
// program. Throws InputError if an index in the program is out of range.
DeadlockReport check_deadlock(const Program& program, ChannelModel model);

struct ProgramFault {
  RankId rank;
  std::int32_t position = 0;  // in the rank's order
  std::string token;
  std::string why;
};

// Structure: indices in range, both ends of every message present once, with the same segments and in the same channel
// order; contributions and sends as the routing demands; every read sees the value it means (slots replayed
// symbolically).
std::vector<ProgramFault> verify_program(const Program& program, std::size_t max_faults = 20);

}  // namespace plumb
