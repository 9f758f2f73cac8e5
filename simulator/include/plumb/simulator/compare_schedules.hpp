// SPDX-License-Identifier: Apache-2.0
//
// compare_schedules.hpp: the same model on the same ranks under several schedules.
//
// Schedules differ in the number of virtual stages they run on, so "the time of a chunk" means different amounts of
// work: the caller gives each schedule the costs of its own chunks, for which times_by_depth() is one way. Each
// schedule is lowered for the costs it is simulated with.
#pragma once

#include <string>
#include <vector>

#include "plumb/cache/policy.hpp"
#include "plumb/schedule/named.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/simulate.hpp"

namespace plumb {

// The V on which a schedule runs where `vp` was asked for: 1 for 1f1b and gpipe, 2 for those of placement vee, else vp.
int virtual_stages_of(ScheduleKind kind, int vp);

// The times of each chunk of `depth` when `num_chunks` chunks of average depth would take `average` each. Throws
// InputError when a time leaves 0..max_duration.
std::vector<ActionTimes> times_by_depth(const ActionTimes& average, int num_chunks, const DepthMap& depth);

struct ScheduleRow {
  std::string schedule;
  int vp = 1;
  Placement placement = Placement::loop;
  std::string refused;  // why it does not fit the layout; empty if it ran
  SimReport report;
  // Most activations alive on one rank, in shares of a P-th part of the model (a rank's chunks for one microbatch):
  // comparable across V, which chunk counts are not.
  double peak_activation_shares = 0;
  std::string chosen{};  // of auto: the order that it took, "zb-v" or "auto, from zb-h1"; else empty
};

// `costs` of this schedule's own chunks.
ScheduleRow simulate_schedule(const Schedule& schedule, const DepthMap& depth, Policy policy, const CostModel& costs,
                              int post_ahead = 1, const SimOptions& simulation = {});

// The mean over ranks.
inline SimTime exposed_communication(const ScheduleRow& row) { return row.report.bubble.waiting; }

// [{"schedule": "1f1b", "vp": 1, "placement": "loop", "refused": null, "step_us": .., "bubble_over_step": ..,
// "exposed_comm_us": .., "peak_activation_chunks": .., "peak_activation_shares": .., "peak_resident_units": ..,
// "peak_bytes": .., "forward_units_per_microbatch": .., "bytes_per_step": .., "traffic_equals_formula": true}, ..]; a
// refused one ends after its reason; auto has "chosen" besides. Peaks of the worst rank.
std::string to_json(const std::vector<ScheduleRow>& rows);

}  // namespace plumb
