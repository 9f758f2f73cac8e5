// SPDX-License-Identifier: Apache-2.0
// conformance.hpp: the contract of Transport and ControlPlane as a list of cases that every transport has to pass.
//
// A case is one function that all ranks run at the same time, each with its own end. It throws on the first broken
// promise (not a Catch2 macro: those are not safe in threads) and has a limit on every wait. A transport's test only
// brings the ranks to life: threads for inproc, processes under mpirun for MPI.
#pragma once

#include <cstdint>
#include <span>

#include "plumb/comm/control.hpp"
#include "plumb/comm/transport.hpp"

namespace plumb::testing {

struct RankEnds {
  Transport& transport;
  ControlPlane& control;
};

struct ConformanceCase {
  const char* sentence;
  std::int32_t min_ranks;
  void (*body)(RankEnds ends);
};

/// Data channels: order, independence, sizes, counters.
std::span<const ConformanceCase> channel_cases();

/// The calls themselves: tickets, memory, refusals, waiting.
std::span<const ConformanceCase> use_cases();

/// What happens when a rank fails, disagrees or never comes.
std::span<const ConformanceCase> failure_cases();

/// Exchange and barrier.
std::span<const ConformanceCase> control_cases();

}  // namespace plumb::testing
