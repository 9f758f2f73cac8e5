// SPDX-License-Identifier: Apache-2.0
//
// trainer.hpp: one rank's training run: step by step through the executor, AdamW on what the rank owns, then the tally.
//
// Loss of a step: mean over the tokens of each microbatch, then over microbatches. The first steps run one routing
// policy each, the rest the chosen one; which policy carried a step changes nothing but the order of a few additions.
// Between steps the ranks exchange loss and bytes, so every rank returns the same result. Threads: one per rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "plumb/runtime/step_log.hpp"
#include "train_lm/depth_report.hpp"
#include "train_lm/rank_links.hpp"
#include "train_lm/text.hpp"
#include "train_lm/train_plan.hpp"

namespace plumb::lm {

// The loss is not a number any more.
class NumericError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct StepEvent {
  std::int64_t step = 0;  // from 1, over all runs that led here
  std::int64_t done = 0;  // steps of this run, this one included
  std::int64_t of = 0;
  Policy policy = Policy::cached;
  double loss = 0;
  std::chrono::nanoseconds wall{0};
  std::int64_t tokens = 0;
  std::span<const StepRecord> records;  // [rank] of a logged step, else empty
  std::span<const DepthReport> depth;   // [sublayer], head last, of a step with diagnostics, else empty
};

// Told after each step, on rank 0.
class StepListener {
 public:
  virtual ~StepListener() = default;
  virtual void step_done(const StepEvent& event) = 0;
};

// Compared with the plain torch model, which rank 0 trained beside it.
struct ReferenceComparison {
  double first_loss_difference = 0;    // relative
  double max_loss_difference = 0;      // absolute, over all steps
  double max_gradient_difference = 0;  // first step, all policies: max |a-b| / max |b| per parameter
};

// Of a schedule that splits the backward, over all ranks and steps.
struct SplitBackward {
  double weight_share = 0;               // CPU time of W over that of I and W together
  std::int64_t peak_deferred_bytes = 0;  // the most that a rank kept for W at once
};

struct TrainResult {
  std::vector<double> losses;  // one per step
  // Per policy of the plan: payload bytes that the transports counted in one step; none if no step ran under it.
  std::vector<std::optional<std::int64_t>> wire_bytes;
  bool wire_steady = true;  // each policy sent the same bytes in all of its steps
  std::optional<ReferenceComparison> reference;
  std::optional<SplitBackward> split_backward;  // none if the schedule has no W
};

// Collective. Throws InputError (checkpoint), NumericError, RunError, TransportError, or what torch throws.
TrainResult train(const TrainPlan& plan, const Text& text, const RankLinks& links, StepListener* listener);

}  // namespace plumb::lm
