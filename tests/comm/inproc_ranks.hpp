// SPDX-License-Identifier: Apache-2.0
// inproc_ranks.hpp: plays every rank of an InprocHub on a thread of its own.
#pragma once

#include <cstdint>
#include <functional>

#include "conformance.hpp"

namespace plumb::testing {

/// Returns when all ranks are done; rethrows the first exception that left `body`, after the other ranks have ended
/// too.
void run_as_threads(std::int32_t num_ranks, const std::function<void(RankEnds)>& body);

}  // namespace plumb::testing
