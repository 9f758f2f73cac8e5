// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <fmt/format.h>

#include "auto.hpp"
#include "cluster.hpp"
#include "commands.hpp"
#include "compare_residual.hpp"
#include "costs.hpp"
#include "html.hpp"
#include "memory.hpp"
#include "network.hpp"
#include "output.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/cache/volume.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/compare.hpp"
#include "plumb/simulator/network.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/simulate.hpp"
#include "plumb/simulator/trace.hpp"
#include "resolve.hpp"

namespace plumb::cli {

namespace {

void print_comparison(const Depth& depth, const Schedule& schedule, const std::vector<PolicyRow>& rows) {
  fmt::print("{}\n{}, {} ranks x {} virtual stages, {} microbatches; one simulated step per routing policy\n\n",
             depth.description, schedule.name, schedule.layout.pp(), schedule.layout.vp(),
             schedule.layout.microbatches());
  Table table(
      {"policy", "step ms", "over standard", "bubble", "units/microbatch", "bytes/step", "peak blocks", "= formula"});
  for (const PolicyRow& row : rows) {
    const bool standard = row.policy == Policy::standard;
    table.add({std::string(to_string(row.policy)), milliseconds(row.report.step),
               standard ? "-" : fmt::format("{:+.2f} %", row.overhead_over_standard * 100),
               percent(row.report.bubble_over_step), fmt::format("{:g}", row.report.forward_units_per_microbatch),
               bytes_text(static_cast<double>(row.report.bytes_per_step)),
               fmt::to_string(worst_peak(row.report).each.block_units),
               row.report.traffic_equals_formula ? "yes" : "NO"});
  }
  fmt::print("{}", table.text());
}

void print_report(const Options& options, const Depth& depth, const Program& program, const SimReport& report) {
  fmt::print("{}\n{}, {} ranks x {} virtual stages, {} microbatches, routing {}\n", depth.description,
             program.schedule_name, program.layout.pp(), program.layout.vp(), program.layout.microbatches(),
             to_string(program.routing.policy));
  if (options.cluster || options.profile) fmt::print("{}\n", cluster_text(options));
  fmt::print("\n");
  fmt::print("step {} ms; idle {} of the step, {} of the work\n", milliseconds(report.step),
             percent(report.bubble_over_step), percent(report.bubble_over_ideal));
  if (options.cluster) fmt::print("{}\n", rate_text(options, program.layout, report.step));
  fmt::print("idle per rank (mean, ms): warm-up {}, steady {}, cool-down {}, waiting for messages {}\n",
             milliseconds(report.bubble.warmup), milliseconds(report.bubble.steady),
             milliseconds(report.bubble.cooldown), milliseconds(report.bubble.waiting));
  fmt::print("traffic: {:g} units forward and {:g} backward per microbatch, {} per step, {} the formula\n\n",
             report.forward_units_per_microbatch, report.backward_units_per_microbatch,
             bytes_text(static_cast<double>(report.bytes_per_step)),
             report.traffic_equals_formula ? "equal to" : "NOT");
  Table table({"rank", "busy ms", "idle ms", "exposed comm ms", "peak activations", "peak blocks", "peak gradients",
               "peak bytes"});
  for (const RankReport& rank : report.ranks) {
    table.add({fmt::to_string(rank.rank.value), milliseconds(rank.busy), milliseconds(rank.bubble.total()),
               milliseconds(rank.bubble.waiting), fmt::to_string(rank.memory.each.activation_chunks),
               fmt::to_string(rank.memory.each.block_units), fmt::to_string(rank.memory.each.gradient_units),
               bytes_text(static_cast<double>(rank.memory.bytes))});
  }
  fmt::print("{}", table.text());
}

}  // namespace

int run_sim(const Options& options) {
  require_cost_flags_fit(options);
  require_html_fits(options);
  if (options.compare_residual) return run_compare_residual_sim(options);
  if (!options.against.empty() && options.compare_cache) {
    throw InputError("--against is about one program and does not go with --compare-cache");
  }
  if (!options.against.empty() && !options.trace.empty()) {
    throw InputError("--trace shows the simulated step and does not go with --against: ask for one of them");
  }
  if (options.compare) {
    resolve_network(options, Link{}, UnitBytes{});  // refuses what does not go with --compare
    if (options.show_cluster) throw InputError("--show-cluster does not go with --compare");
    return run_compare_schedules(options);
  }
  const Layout layout = resolve_layout(options);
  const Depth depth = resolve_depth(options, layout);
  require_memory(bytes_needed(Product::simulation, layout, depth.map, resolve_policy(options, depth.map),
                              splits_backward(options)),
                 "simulating " + size_text(layout));
  std::string searched;
  std::string searched_json;
  const Schedule schedule = [&] {
    if (!wants_auto(options)) return resolve_schedule(options, layout);
    AutoSchedule found = search_schedule(options, layout);
    searched = table_of(found);
    searched_json = to_json(found);
    return std::move(found.schedule);
  }();
  const UnitBytes bytes = resolve_bytes(options, depth.hidden);
  const CostModel costs = resolve_sim_costs(options, depth.map, bytes);
  const std::optional<NetworkModel> network = resolve_network(options, costs.link(RankId(0), RankId(0)), bytes);
  warn_of_cluster(options, depth.map);
  if (options.compare_cache) {
    if (!options.trace.empty()) {
      throw InputError("--trace shows one policy and does not go with --compare-cache");
    }
    if (options.cache) {
      throw InputError("--cache names one policy and does not go with --compare-cache, which runs them all");
    }
    const std::vector<PolicyRow> rows = compare_policies(schedule, depth.map, costs, resolve_simulation(options),
                                                         options.post_ahead, network ? &*network : nullptr);
    if (options.show_cluster) throw InputError("--show-cluster does not go with --compare-cache");
    if (options.json) {
      fmt::print("{{\"policies\":{}}}\n", to_json(rows));
    } else {
      print_comparison(depth, schedule, rows);
    }
    return 0;
  }
  const auto lowered = [&](const PlanCosts& plan_costs) {
    return lower(schedule, depth.map, resolve_policy(options, depth.map),
                 {.post_ahead = options.post_ahead, .costs = plan_costs});
  };
  const SimOptions simulation = resolve_simulation(options);
  PlanCosts plan = costs.plan_costs();
  plan.duplex = planned_duplex(simulation, network ? &*network : nullptr);
  Program program = lowered(plan);
  if (!options.against.empty()) {
    // Training plans with the default costs, whatever its actions take.
    Program plain = lowered({});
    if (is_log_of(options.against, plain)) {
      program = std::move(plain);
    }
  }
  const Timeline timeline = network ? simulate_network(program, costs, *network) : simulate(program, costs, simulation);
  if (!options.against.empty()) {
    return run_against(options, program, timeline);
  }
  const SimReport report = make_report(program, costs, timeline);
  if (!options.trace.empty()) {
    write_file(options.trace, [&](std::ostream& out) { write_trace(out, program, costs, timeline); });
  }
  if (!options.html.empty()) {
    write_html_page({options, depth, schedule, program, costs, network, timeline, report});
  }
  if (options.json) {
    std::string text = to_json(report);
    text.pop_back();
    text += fmt::format(",\"cuts\":[{}]", fmt::join(depth.map.cuts(), ","));
    if (network) text += fmt::format(",\"network\":{}", network_json(*network));
    if (options.show_cluster) text += fmt::format(",\"cluster\":{}", shown_cluster(options, true));
    if (!searched_json.empty()) text += fmt::format(",\"auto\":{}", searched_json);
    fmt::print("{}}}\n", text);
  } else {
    fmt::print("{}{}", searched, searched.empty() ? "" : "\n");
    if (options.show_cluster) fmt::print("{}\n", shown_cluster(options, false));
    print_report(options, depth, program, report);
    if (network) fmt::print("\n{}\n", network_text(options, *network));
  }
  return 0;
}

}  // namespace plumb::cli
