// SPDX-License-Identifier: Apache-2.0
//
// makespan.hpp: when each action of a schedule runs if messages cost nothing.
//
// The longest path through the table: a rank takes its actions in their order, each as soon as its inputs exist. This
// is what bubble formulas talk about; real links, memory and overlap with communication are the simulator's business.
// An overlapped pair starts when the inputs of both halves exist, and both halves end with it. Times are in any unit
// you like; the result is in the same. Pure functions, linear in the number of actions.
#pragma once

#include <span>
#include <vector>

#include "plumb/schedule/schedule.hpp"

namespace plumb {

// One chunk, one microbatch. A full backward takes backward_input + backward_weight.
struct ChunkTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
};

// How the halves of an overlapped pair run.
struct PairTiming {
  // false: one after the other, each as soon as its own inputs exist (as the simulator and the executor do it, and
  // torch unless it is given a function for pairs). true: both start when the inputs of both exist and end together
  // (what the published formulas assume).
  bool together = false;
  double share = 1;  // of the sum of its halves that a pair takes; other than 1 only if together
};

struct ActionSpan {
  double start = 0;
  double end = 0;
};

struct RankTimes {
  double busy = 0;   // sum of its actions
  double first = 0;  // start of its first action
  double last = 0;   // end of its last action; 0 if it has none
  double own_idle() const { return last - first - busy; }
};

struct ComputeTimeline {
  std::vector<std::vector<ActionSpan>> spans;  // [rank][position]
  std::vector<RankTimes> ranks;
  double makespan = 0;
  // Waiting of this rank within the whole step, before its first and after its last action included.
  double idle(RankId rank) const { return makespan - ranks[rank.index()].busy; }
};

// `times`: one entry for all chunks, or one per chunk. Throws InputError if the number of entries fits neither, if a
// time or the share of a pair is not legal, or if the schedule cannot run to its end (with the first action that never
// does).
ComputeTimeline time_schedule(const Schedule& schedule, std::span<const ChunkTimes> times,
                              const PairTiming& pairs = {});
ComputeTimeline time_schedule(const Schedule& schedule, const ChunkTimes& times, const PairTiming& pairs = {});

// Most activations of one chunk and microbatch alive at once, per rank. One lives from its F to its B, or to its W if
// the backward is split. In an overlapped pair both are alive. Forward-only schedules keep none: 0.
std::vector<int> peak_activations(const Schedule& schedule);

}  // namespace plumb
