// SPDX-License-Identifier: Apache-2.0
#include "plumb/rehearsal/report.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "plumb/cache/volume.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

SimTime since(std::int64_t zero_ns, std::int64_t at_ns) { return std::chrono::nanoseconds(at_ns - zero_ns); }

double step_us(std::span<const MeasuredStep* const> ranks) {
  std::int64_t end = 0;
  for (const MeasuredStep* rank : ranks)
    end = std::max(end, rank->record.end_ns);
  return static_cast<double>(end - ranks.front()->agreed_start_ns) * 1e-3;
}

using Steps = std::vector<MeasuredStep> RankOutcome::*;

std::vector<const MeasuredStep*> all_ranks(std::span<const RankOutcome> outcomes, Steps steps, std::size_t step) {
  std::vector<const MeasuredStep*> ranks;
  for (const RankOutcome& outcome : outcomes)
    ranks.push_back(&(outcome.*steps)[step]);
  return ranks;
}

StepTimes times_of(std::span<const RankOutcome> outcomes, Steps steps) {
  StepTimes times;
  for (std::size_t step = 0; step < (outcomes.front().*steps).size(); ++step)
    times.all_us.push_back(step_us(all_ranks(outcomes, steps, step)));
  std::vector<double> sorted = times.all_us;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t half = sorted.size() / 2;
  times.median_us = sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  times.spread_us = sorted.back() - sorted.front();
  return times;
}

std::size_t median_step(const StepTimes& times) {
  std::vector<std::size_t> order(times.all_us.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return times.all_us[a] < times.all_us[b]; });
  return order[order.size() / 2];
}

void require_complete(const RehearsalPlan& plan, std::span<const RankOutcome> outcomes) {
  const auto steps = static_cast<std::size_t>(plan.steps);
  const bool fits =
      outcomes.size() == plan.program->ranks.size() &&
      std::all_of(outcomes.begin(), outcomes.end(), [&](const RankOutcome& outcome) {
        return outcome.program.size() == steps && outcome.baseline.size() == (plan.baseline ? steps : std::size_t{0});
      });
  if (!fits) throw InputError("the outcomes of the ranks are not those of the plan: other ranks or steps");
}

void count_wire(const RehearsalPlan& plan, std::span<const RankOutcome> outcomes, RehearsalReport& report) {
  for (int step = 0; step < plan.steps; ++step) {
    std::int64_t bytes = 0;
    for (const RankOutcome& outcome : outcomes) {
      const StepResult& result = outcome.program[static_cast<std::size_t>(step)].result;
      bytes += static_cast<std::int64_t>(result.sent.total_bytes());
      report.num_messages += static_cast<std::int64_t>(result.sent.num_messages);
      if (plan.baseline) {
        report.num_messages +=
            static_cast<std::int64_t>(outcome.baseline[static_cast<std::size_t>(step)].result.sent.num_messages);
      }
    }
    report.wire_bytes = step == 0 || report.wire_bytes == bytes ? bytes : -1;
    if (report.wire_bytes < 0) return;
  }
}

std::int64_t formula_bytes(const Program& program, const UnitBytes& bytes) {
  const std::int64_t units = expected_units(program.layout, program.depth, program.routing.policy);
  return units * program.layout.microbatches() * (bytes.value + (program.forward_only ? 0 : bytes.gradient_wire));
}

}  // namespace

double RehearsalReport::difference() const {
  const double expected = to_us(predicted.step);
  return expected > 0 ? program.median_us / expected - 1 : 0;
}

Timeline timeline_of(const Program& program, std::span<const MeasuredStep* const> ranks) {
  Timeline timeline;
  timeline.messages.resize(program.messages.size());
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const MeasuredStep& measured = *ranks[r];
    const std::int64_t zero = measured.agreed_start_ns;
    RankTimeline& rank = timeline.ranks.emplace_back();
    for (const StepRecord::Computation& compute : measured.record.compute)
      rank.compute.push_back({since(zero, compute.start_ns), since(zero, compute.end_ns), SimTime(0)});
    rank.comm_done.resize(program.ranks[r].comm.size());
    for (std::size_t i = 0; i < program.ranks[r].comm.size(); ++i) {
      const CommStep& step = program.ranks[r].comm[i];
      if (step.kind != CommKind::send && step.kind != CommKind::receive) continue;
      const StepRecord::MessageEnd& end = measured.record.comm[i];
      MessageTimes& message = timeline.messages[step.message.index()];
      rank.comm_done[i] = since(zero, end.finished_ns);
      (step.kind == CommKind::send ? message.send_ready : message.posted) = since(zero, end.posted_ns);
      (step.kind == CommKind::send ? message.sent : message.arrived) = since(zero, end.finished_ns);
      if (end.started_ns != 0) message.start = since(zero, end.started_ns);
    }
  }
  for (MessageTimes& message : timeline.messages)
    message.start = std::max({message.start, message.send_ready, message.posted});
  complete_measured(program, timeline);
  return timeline;
}

RehearsalReport make_report(const RehearsalPlan& plan, std::span<const RankOutcome> outcomes,
                            const SimOptions& options) {
  require_complete(plan, outcomes);
  const Program& program = *plan.program;
  RehearsalReport report;
  report.program = times_of(outcomes, &RankOutcome::program);
  report.timeline = timeline_of(program, all_ranks(outcomes, &RankOutcome::program, median_step(report.program)));
  report.measured = make_report(program, plan.costs, report.timeline);
  report.measured_exposure = exposure(program, report.timeline);

  const Timeline predicted = simulate(program, plan.costs, options);
  report.predicted = make_report(program, plan.costs, predicted);
  report.predicted_exposure = exposure(program, predicted);
  if (plan.baseline) {
    report.baseline = times_of(outcomes, &RankOutcome::baseline);
    report.overhead = report.program.median_us / report.baseline->median_us - 1;
    report.predicted_baseline_us = to_us(simulate(*plan.baseline, plan.costs, options).step);
    report.predicted_overhead = to_us(predicted.step) / *report.predicted_baseline_us - 1;
  }

  report.formula_bytes = formula_bytes(program, plan.costs.bytes());
  report.simulated_bytes = report.predicted.bytes_per_step;
  count_wire(plan, outcomes, report);
  for (const RankOutcome& outcome : outcomes) {
    report.num_checked += outcome.num_checked;
    report.num_mismatches += outcome.num_mismatches;
    if (report.first_mismatch.empty()) report.first_mismatch = outcome.first_mismatch;
  }
  return report;
}

}  // namespace plumb
