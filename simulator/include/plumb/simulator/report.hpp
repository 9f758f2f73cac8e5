// SPDX-License-Identifier: Apache-2.0
//
// report.hpp: the numbers people ask of a simulated step, taken from its timeline.
//
// Traffic is summed over what arrived in the simulation and shares nothing with the closed formulas it is compared
// with. Bubble = idle time. On each rank it is split in four that add up: `waiting`, where the data existed and was on
// its way (exposed communication), and the rest by phase: warm-up until the first backward starts, cool-down from the
// last forward's end, steady between. What was computed and what was waited for is split further; all of it together is
// the step, to the picosecond. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/exposure.hpp"
#include "plumb/simulator/memory.hpp"
#include "plumb/simulator/network_model.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

struct Bubble {
  SimTime warmup{0};
  SimTime steady{0};
  SimTime cooldown{0};
  SimTime waiting{0};
  SimTime total() const { return warmup + steady + cooldown + waiting; }
};

struct Busy {
  SimTime forward{0};
  SimTime backward{0};  // B and I
  SimTime backward_weight{0};
  SimTime total() const { return forward + backward + backward_weight; }
};

struct RankReport {
  RankId rank;
  SimTime busy{0};
  Busy work;         // total() = busy
  Bubble bubble;     // total() = step - busy; waiting = exposed communication
  Exposure exposed;  // total() = bubble.waiting
  MemoryPeak memory;
};

// All messages from one chunk to another. Units per microbatch; the backward ones travel from `to` to `from`.
struct HopReport {
  ChunkId from_chunk;
  ChunkId to_chunk;
  RankId from_rank;
  RankId to_rank;
  double forward_units = 0;
  double backward_units = 0;
  std::int64_t bytes_per_step = 0;
  SimTime queued{0};   // summed over messages: ready at both ends and not started
  SimTime on_wire{0};  // start to arrival
};

struct SimReport {
  SimTime step{0};
  Bubble bubble;                 // the mean over ranks, rounded down to a picosecond
  double bubble_over_step = 0;   // idle / (ranks x step)
  double bubble_over_ideal = 0;  // idle / busy: (P-1)/(M V) for uniform chunks and free messages, Megatron's figure
  std::vector<RankReport> ranks;
  std::vector<HopReport> hops;  // ascending by chunks; only pairs with messages
  double forward_units_per_microbatch = 0;
  double backward_units_per_microbatch = 0;
  std::int64_t bytes_per_step = 0;
  bool traffic_equals_formula = false;  // units both ways and bytes, against expected_units() of volume.hpp
  bool memory_within_slots = false;     // every peak is within the slots that the program allots
  bool times_add_up = false;            // on every rank the parts of work, exposed and bubble are the step
};

// `timeline` must come from simulate(program, costs), or from simulate_network() with that network.
SimReport make_report(const Program& program, const CostModel& costs, const Timeline& timeline,
                      const NetworkModel* network = nullptr);

// The largest of each peak over the ranks; bytes, time and what was live come from the rank with the most bytes.
MemoryPeak worst_peak(const SimReport& report);

// One JSON object, microseconds and bytes in the key names; the keys are documented in simulator/README.md.
std::string to_json(const SimReport& report);

}  // namespace plumb
