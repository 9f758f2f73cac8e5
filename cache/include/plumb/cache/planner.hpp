// SPDX-License-Identifier: Apache-2.0
//
// planner.hpp: one common linear order of everything that happens in a step, by a small list schedule.
//
// Computes run in each rank's given order; messages start by the rules of arbiter.hpp. The order of *starts* is a
// linear extension of all dependencies; using it at both ends of every queue makes a program deadlock-free whatever the
// real times are (proof in docs/lowering.md). The costs only shape the order: bad costs cost time, never correctness.
// This is not the simulator: it knows no slots, bytes or clusters.
#pragma once

#include <cstdint>
#include <vector>

#include "plumb/cache/arbiter.hpp"
#include "plumb/cache/program.hpp"

namespace plumb {

struct PlanChunkCosts {
  std::int64_t forward = 0;
  std::int64_t backward_input = 0;
  std::int64_t backward_weight = 0;
};

// Time in integer ticks; only ratios matter.
struct PlanCosts {
  std::int64_t forward = 1'000'000;          // F of one chunk
  std::int64_t backward_input = 1'000'000;   // I
  std::int64_t backward_weight = 1'000'000;  // W; B = I + W
  std::int64_t value_unit = 50'000;      // one [tokens, d] value on a link, both NICs held; 0 = links are never busy
  std::int64_t gradient_unit = 50'000;   // one gradient on a link
  std::int64_t latency = 0;              // added to every arrival
  Duplex duplex = Duplex::full;          // half: one stream per rank carries everything, one message at a time
  std::vector<PlanChunkCosts> chunks{};  // in depth order, instead of the first three; empty: all chunks are alike
};

struct PlannedStart {
  bool is_message = false;
  RankId rank;             // compute: its rank
  std::int32_t index = 0;  // compute: position in the schedule's row (a pair is two); message: index into `messages`
  std::int64_t start = 0;
  std::int64_t end = 0;      // computed; message: off the wire, both network ends free again
  std::int64_t arrival = 0;  // message: usable at the receiver
};

struct Plan {
  std::vector<Message> messages;     // in order of start
  std::vector<PlannedStart> starts;  // computes and messages in order of start
  std::int64_t makespan = 0;
};

// REQUIRES a legal schedule (check.hpp); one that cannot run is a broken invariant here. Throws InputError when `costs`
// names another number of chunks than the layout has.
Plan plan_order(const Schedule& schedule, const Routing& routing, const PlanCosts& costs);

}  // namespace plumb
