// SPDX-License-Identifier: Apache-2.0
//
// policy.hpp: the names of the routing policies, i.e. who sends which block to whom, and when.
//
// - standard: one hidden state per hop, the ordinary residual stream; no blocks.
// - naive: the whole prefix of closed blocks on every hop, O(C^2).
// - relay: only what the receiving rank lacks, one message per hop after the sending chunk has computed: the paper's.
// - cached: same tree and volume as relay, but a passing block is sent on as soon as it has arrived. The default.
// - direct: the closing rank sends its block to every rank that needs it: one hop, many edges.
#pragma once

#include <cstdint>
#include <string_view>

namespace plumb {

enum class Policy : std::uint8_t { standard, naive, relay, cached, direct };

std::string_view to_string(Policy policy);

// "naive", "relay", "cached" or "direct" (standard is chosen by the residual, not by name); else throws InputError.
Policy parse_policy(std::string_view text);

// Urgent messages carry the partial and the newly closed blocks, bulk ones the passing blocks; urgent goes first.
enum class MessageLane : std::uint8_t { urgent, bulk };

}  // namespace plumb
