// SPDX-License-Identifier: Apache-2.0
//
// evaluate.hpp: what a candidate takes: its step simulated with the program that would run, and the memory of its
// fullest device from the lifetimes in that step.
//
// The step is the simulated pipeline with all its microbatches, plus the end of the step (step_end.hpp). Pure: the
// same request and candidate give the same bits on any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumb/simulator/cost_model.hpp"
#include "plumb/sizing/candidates.hpp"

namespace plumb {

struct Outcome {
  bool fits = false;       // in the request's memory; if not, only peak_bytes (from below) and peak_rank are said
  double pipeline_us = 0;  // what plumb sim says of it
  double step_end_us = 0;
  double peak_bytes = 0;  // of the fullest device
  int peak_rank = 0;
  double network_bytes = 0;  // sent through tiers beyond the innermost, mean over devices; all if there is one tier
  double bubble = 0;         // idle share of the pipeline, mean over ranks
  double exposed_us = 0;     // of that, waiting for what had been computed: mean over ranks
  double step_us() const { return pipeline_us + step_end_us; }
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome evaluate(const SizeRequest& request, const Candidate& candidate);
// The same of the candidate with each of these shardings instead of its own: they have the pipeline in common, so that
// one simulation tells all.
std::vector<Outcome> evaluate(const SizeRequest& request, const Candidate& candidate,
                              std::span<const Sharding> shardings);

// What the fullest device holds when most is held.
struct MemoryNeed {
  int rank = 0;
  Footprint held;
  double activation_bytes = 0;
  double block_bytes = 0;  // values and gradients of blocks, partial sums, messages
  double total() const { return held.total() + activation_bytes + block_bytes; }
};

// Without regard to whether it fits.
MemoryNeed memory_need(const SizeRequest& request, const Candidate& candidate);

// No order of the candidate's computations can do better, whatever the routing.
struct LowerBounds {
  double step_us = 0;
  double peak_bytes = 0;
  double network_bytes = 0;
};

// Bytes of a unit of the candidate's, whole on a tensor-parallel group.
UnitBytes unit_bytes_of(const SizeRequest& request, const Candidate& candidate);

// The bounds of every member of a family, in its order.
std::vector<LowerBounds> lower_bounds(const SizeRequest& request, const CandidateFamily& family);

}  // namespace plumb
