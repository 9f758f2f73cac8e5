// SPDX-License-Identifier: Apache-2.0
//
// critical_path.hpp: the chain of computations and messages that makes a step as long as it is.
//
// Walked back from the last event over what each thing had waited for last: the computation before it on its rank, or a
// message, and so on to the start. The pieces follow each other without gaps and are the step, to the picosecond. Where
// a message waited for others (its card or stream busy, or shared), that time is `queue` and the walk goes on from when
// both of its ends were ready. Of several equally late ones the computation on the rank itself is taken, else the first
// in the list: there may be other chains as long. O(steps); pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/network_model.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

enum class PathKind : std::uint8_t {
  forward,
  backward,  // B and I
  backward_weight,
  wire,   // launch, latency, bytes at the rate a message has alone
  queue,  // both ends ready, not moving or moving more slowly than alone
  wait    // anything else: a thread not yet awake, nothing to do
};

constexpr bool is_message(PathKind kind) { return kind == PathKind::wire || kind == PathKind::queue; }

std::string_view to_string(PathKind kind);  // "F", "B", "W", "wire", "queue", "wait"

struct PathPiece {
  PathKind kind = PathKind::wait;
  RankId rank;  // of messages the sender
  RankId to;    // of messages the receiver, else `rank`
  SimTime begin{0};
  SimTime end{0};
};

// In order of time. With the network where the timeline is one of simulate_network().
std::vector<PathPiece> critical_path(const Program& program, const CostModel& costs, const Timeline& timeline,
                                     const NetworkModel* network = nullptr);

struct PathShare {
  PathKind kind = PathKind::wait;
  RankId rank;
  RankId to;
  std::int64_t count = 0;
  SimTime time{0};
};

// Pieces of the same kind and ranks together, the longest first.
std::vector<PathShare> path_shares(const std::vector<PathPiece>& path);

// "B of rank 3", "message queued, rank 2 to rank 1".
std::string name_of(const PathShare& share);

}  // namespace plumb
