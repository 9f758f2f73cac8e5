// SPDX-License-Identifier: Apache-2.0
//
// names.hpp: steps of a program in the words people read in errors and traces.
#pragma once

#include <string>

#include "plumb/cache/program.hpp"

namespace plumb {

// "3SEND_F1" or "3RECV_F1": torch's token, named after the chunk at that end; backward "4SEND_B1".
std::string message_name(const Program& program, MessageId message, bool sending);

// "3B1"; "3SEND_F1 to rank 2"; "adding b2 of microbatch 1".
std::string step_name(const Program& program, RankId rank, Wait step);

}  // namespace plumb
