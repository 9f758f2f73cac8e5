// SPDX-License-Identifier: Apache-2.0
//
// naive_run.hpp (tests): runs a small program under a channel model the plain way: look at everything again and again
// until nothing moves. Shares nothing with the checker.
#pragma once

#include <set>
#include <utility>

#include "plumb/cache/deadlock.hpp"

namespace plumb::test {

// The (rank, position in its order) of every step that never finishes; empty if the program runs through.
std::set<std::pair<std::size_t, std::size_t>> stuck_steps(const Program& program, ChannelModel model);

}  // namespace plumb::test
