// SPDX-License-Identifier: Apache-2.0
//
// rank_threads.hpp: all ranks of a run as threads of this process, and which of their failures is the cause.
//
// When a rank fails its transport is failed with it, so that the others end too; they then throw a PeerError, or a
// TransportError of kind peer, which only echoes the cause. Whoever starts ranks shows the cause and no echo.
#pragma once

#include <exception>
#include <functional>

#include "plumb/comm/control.hpp"
#include "plumb/comm/transport.hpp"
#include "plumb/schedule/ids.hpp"

namespace plumb {

// Whether this failure only tells that another rank failed first. `failure` is not null.
bool is_echo(const std::exception_ptr& failure);

// Plays every rank of 0..num_ranks-1 on a thread of its own, over transports within this process, and waits for all.
// Rethrows the first rank's failure that is not an echo, else the last echo. Throws std::invalid_argument for a number
// of ranks that InprocHub refuses.
void run_ranks_as_threads(int num_ranks, const std::function<void(RankId, Transport&, ControlPlane&)>& play);

}  // namespace plumb
