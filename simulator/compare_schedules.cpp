// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/compare_schedules.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "plumb/cache/lower.hpp"

namespace plumb {
namespace {

double peak_shares(const Program& program) {
  std::int64_t most = 0;
  for (const RankProgram& rank : program.ranks) {
    std::int64_t alive = 0;
    for (const ComputeStep& step : rank.compute) {
      const int sublayers = program.depth.sublayers_of(step.compute.chunk).size();
      if (step.compute.op == Op::forward) alive += sublayers;
      most = std::max(most, alive);
      if (step.compute.op == Op::backward || step.compute.op == Op::backward_weight) alive -= sublayers;
    }
  }
  return static_cast<double>(most) * program.layout.pp() / program.depth.sublayers();
}

}  // namespace

int virtual_stages_of(ScheduleKind kind, int vp) {
  if (kind == ScheduleKind::one_f_one_b || kind == ScheduleKind::gpipe) return 1;
  return placement_of(kind) == Placement::vee ? 2 : vp;
}

std::vector<ActionTimes> times_by_depth(const ActionTimes& average, int num_chunks, const DepthMap& depth) {
  std::vector<ActionTimes> times;
  for (ChunkId chunk; chunk.value < depth.num_chunks(); chunk = chunk.next()) {
    const double share =
        static_cast<double>(depth.sublayers_of(chunk).size()) * num_chunks / static_cast<double>(depth.sublayers());
    const auto scaled = [&](SimTime time, std::string_view what) { return from_us(to_us(time) * share, what); };
    times.push_back({.forward = scaled(average.forward, "F of a chunk"),
                     .backward = scaled(average.backward, "B of a chunk"),
                     .backward_input = scaled(average.backward_input, "I of a chunk"),
                     .backward_weight = scaled(average.backward_weight, "W of a chunk")});
  }
  return times;
}

ScheduleRow simulate_schedule(const Schedule& schedule, const DepthMap& depth, Policy policy, const CostModel& costs,
                              int post_ahead, const SimOptions& simulation) {
  PlanCosts plan = costs.plan_costs();
  plan.duplex = simulation.duplex;
  const Program program = lower(schedule, depth, policy, {.post_ahead = post_ahead, .costs = plan});
  ScheduleRow row{.schedule = schedule.name,
                  .vp = schedule.layout.vp(),
                  .placement = schedule.layout.placement(),
                  .refused = {},
                  .report = make_report(program, costs, simulate(program, costs, simulation)),
                  .peak_activation_shares = peak_shares(program)};
  return row;
}

std::string to_json(const std::vector<ScheduleRow>& rows) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const ScheduleRow& row : rows) {
    nlohmann::ordered_json entry{{"schedule", row.schedule}, {"vp", row.vp}, {"placement", to_string(row.placement)}};
    if (!row.refused.empty()) {
      entry["refused"] = row.refused;
      out.push_back(std::move(entry));
      continue;
    }
    const SimReport& report = row.report;
    const MemoryPeak peak = worst_peak(report);
    entry["refused"] = nullptr;
    if (!row.chosen.empty()) entry["chosen"] = row.chosen;
    entry["step_us"] = to_us(report.step);
    entry["bubble_over_step"] = report.bubble_over_step;
    entry["exposed_comm_us"] = to_us(exposed_communication(row));
    entry["peak_activation_chunks"] = peak.each.activation_chunks;
    entry["peak_activation_shares"] = row.peak_activation_shares;
    entry["peak_resident_units"] = peak.each.block_units;
    entry["peak_bytes"] = peak.bytes;
    entry["forward_units_per_microbatch"] = report.forward_units_per_microbatch;
    entry["bytes_per_step"] = report.bytes_per_step;
    entry["traffic_equals_formula"] = report.traffic_equals_formula;
    out.push_back(std::move(entry));
  }
  return out.dump();
}

}  // namespace plumb
