// SPDX-License-Identifier: Apache-2.0
//
// report.hpp: what a rehearsal showed, beside what the simulator says of the same costs.
//
// The measured step is turned into a Timeline like a simulated one, so both are reported, drawn and compared by the
// same code. Plain data; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plumb/rehearsal/rehearse.hpp"
#include "plumb/simulator/exposure.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/simulate.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

struct StepTimes {
  double median_us = 0;
  double spread_us = 0;  // longest minus shortest
  std::vector<double> all_us;
};

struct RehearsalReport {
  StepTimes program;
  std::optional<StepTimes> baseline;
  std::optional<double> overhead;  // of the medians, over the baseline

  Timeline timeline;  // of the step with the median time
  SimReport measured;
  std::vector<Exposure> measured_exposure;  // [rank]

  SimReport predicted;
  std::vector<Exposure> predicted_exposure;
  std::optional<double> predicted_baseline_us;
  std::optional<double> predicted_overhead;

  std::int64_t formula_bytes = 0;    // payload per step, from the closed expression
  std::int64_t simulated_bytes = 0;  // summed over simulated arrivals
  std::int64_t wire_bytes = 0;       // counted by the transports; of every step, or -1 if steps differed
  std::int64_t num_messages = 0;     // in all steps of both programs, the one to warm up left out
  std::int64_t num_checked = 0;
  std::int64_t num_mismatches = 0;
  std::string first_mismatch;

  // Difference of measured and predicted step, as a share of the predicted one.
  double difference() const;
};

// The measured step as the simulator would have recorded it. `ranks`: one per rank, of the same step.
Timeline timeline_of(const Program& program, std::span<const MeasuredStep* const> ranks);

// `outcomes`: one per rank, as many steps in each. Throws InputError when they do not fit the plan.
RehearsalReport make_report(const RehearsalPlan& plan, std::span<const RankOutcome> outcomes,
                            const SimOptions& options = {});

}  // namespace plumb
