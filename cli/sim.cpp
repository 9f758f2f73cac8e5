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
#include "plumb/simulator/link_load.hpp"
#include "plumb/simulator/network.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/simulate.hpp"
#include "plumb/simulator/trace.hpp"
#include "resolve.hpp"
#include "schedule_file.hpp"
#include "sim_text.hpp"
#include "step_end.hpp"
#include "step_memory.hpp"
#include "warnings.hpp"
#include "what_if.hpp"

namespace plumb::cli {

namespace {

void require_flags_fit(const Options& options) {
  require_cost_flags_fit(options);
  require_html_fits(options);
  const std::pair<std::string_view, bool> others[] = {{"--against", !options.against.empty()},
                                                      {"--compare", options.compare.has_value()},
                                                      {"--compare-cache", options.compare_cache},
                                                      {"--compare-residual", options.compare_residual.has_value()}};
  for (const auto& [flag, given] : others) {
    if (given && options.what_if) {
      throw InputError(fmt::format("--what-if is about one simulated step and does not go with {}", flag));
    }
  }
  if (!options.against.empty() && options.compare_cache) {
    throw InputError("--against is about one program and does not go with --compare-cache");
  }
  if (!options.against.empty() && !options.trace.empty()) {
    throw InputError("--trace shows the simulated step and does not go with --against: ask for one of them");
  }
  if (options.compare_cache && !options.trace.empty()) {
    throw InputError("--trace shows one policy and does not go with --compare-cache");
  }
  if (options.compare_cache && options.cache) {
    throw InputError("--cache names one policy and does not go with --compare-cache, which runs them all");
  }
  if (options.show_cluster && (options.compare || options.compare_cache)) {
    throw InputError(
        fmt::format("--show-cluster does not go with {}", options.compare ? "--compare" : "--compare-cache"));
  }
}

// The order of computations, and what a search for it found.
struct Order {
  Schedule schedule;
  std::string text;
  std::string json;
};

Order resolve_order(const Options& options, const Layout& layout) {
  if (!wants_auto(options)) return {resolve_schedule(options, layout), "", ""};
  AutoSchedule found = search_schedule(options, layout);
  std::string text = table_of(found);
  std::string json = to_json(found);
  return {std::move(found.schedule), std::move(text), std::move(json)};
}

// What one step is simulated with.
struct Setup {
  const Options& options;
  Layout layout;
  Depth depth;
  Order order;
  UnitBytes bytes;
  CostModel costs;
  std::optional<NetworkModel> network;

  const NetworkModel* shared() const { return network ? &*network : nullptr; }
};

int run_compare_cache(const Setup& setup) {
  std::optional<DeviceBytes> device;
  if (knows_memory(setup.options)) device = device_bytes(setup.options, setup.depth.map, setup.bytes);
  const std::vector<PolicyRow> rows =
      compare_policies(setup.order.schedule, setup.depth.map, setup.costs, resolve_simulation(setup.options),
                       setup.options.post_ahead, setup.shared(), device ? &*device : nullptr);
  print_warnings(warnings_of(setup.options));
  if (setup.options.json) {
    fmt::print("{{\"policies\":{}}}\n", to_json(rows));
  } else {
    print_comparison(setup.depth, setup.order.schedule, rows);
  }
  return 0;
}

Program make_program(const Setup& setup) {
  const Options& options = setup.options;
  const auto lowered = [&](const PlanCosts& plan_costs) {
    return lower_as_given(options, setup.order.schedule, setup.depth.map,
                          {.post_ahead = options.post_ahead, .costs = plan_costs});
  };
  PlanCosts plan = setup.costs.plan_costs();
  plan.duplex = planned_duplex(resolve_simulation(options), setup.shared());
  Program program = lowered(plan);
  if (!options.against.empty()) {
    // Training plans with the default costs, whatever its actions take.
    Program plain = lowered({});
    if (is_log_of(options.against, plain)) return plain;
  }
  return program;
}

// All that is known of a simulated step.
struct Findings {
  SimReport report;
  LinkLoads loads;
  std::optional<StepEnd> end;
  std::optional<StepMemory> memory;
  std::optional<WhatIfs> what_ifs;
};

Findings look_into(const Setup& setup, const Program& program, const Timeline& timeline) {
  Findings found{.report = make_report(program, setup.costs, timeline, setup.shared()),
                 .loads = link_loads(program, setup.costs, timeline, setup.shared()),
                 .end = resolve_step_end(setup.options, setup.depth.map),
                 .memory = {},
                 .what_ifs = {}};
  if (knows_memory(setup.options)) {
    found.memory =
        step_memory(setup.options, setup.order.schedule, setup.depth, setup.bytes, setup.network, program, timeline);
  }
  if (setup.options.what_if)
    found.what_ifs = resolve_what_ifs(setup.options, program, setup.costs, setup.network, timeline);
  return found;
}

void print_json(const Setup& setup, const Findings& found) {
  const Options& options = setup.options;
  const SimTime step = found.report.step;
  std::string text = to_json(found.report);
  text.pop_back();
  const Layout& layout = setup.layout;
  text +=
      fmt::format(R"(,"layout":{{"pp":{},"vp":{},"microbatches":{},"placement":"{}"}},"schedule":"{}","cache":"{}")",
                  layout.pp(), layout.vp(), layout.microbatches(), to_string(layout.placement()),
                  setup.order.schedule.name, to_string(resolve_policy(options, setup.depth.map)));
  text += fmt::format(",\"cuts\":[{}]", fmt::join(setup.depth.map.cuts(), ","));
  text += "," + links_json(found.loads, step);
  if (setup.network) text += fmt::format(",\"network\":{}", network_json(*setup.network));
  text += fmt::format(",\"pipeline_us\":{}", to_us(step));
  if (found.end) text += "," + step_end_json(*found.end, step);
  if (options.cluster) {
    const double rate = tokens_per_second(options, setup.layout, with_end(step, found.end));
    text += fmt::format(",\"tokens_per_s_per_device\":{}", rate);
    if (const std::optional<double> share = share_of_peak(options, rate))
      text += fmt::format(",\"share_of_peak_flops\":{}", *share);
  }
  if (found.memory) text += fmt::format(",\"memory\":{}", memory_json(options, *found.memory));
  if (costs_model(options)) text += fmt::format(",\"left_out\":{}", left_out_json(options));
  if (found.what_ifs) text += "," + what_if_json(*found.what_ifs);
  if (options.show_cluster) text += fmt::format(",\"cluster\":{}", shown_cluster(options, true));
  if (!setup.order.json.empty()) text += fmt::format(",\"auto\":{}", setup.order.json);
  fmt::print("{}}}\n", text);
}

void print_text(const Setup& setup, const Program& program, const Findings& found) {
  fmt::print("{}{}", setup.order.text, setup.order.text.empty() ? "" : "\n");
  if (setup.options.show_cluster) fmt::print("{}\n", shown_cluster(setup.options, false));
  print_report(setup.options, setup.depth, program, found.report, found.end);
  for (const std::string& part :
       {links_text(found.loads, found.report.step),
        found.memory ? memory_text(setup.options, *found.memory) : std::string(),
        found.what_ifs ? what_if_text(*found.what_ifs, found.report.step, found.end ? "pipeline" : "step")
                       : std::string(),
        setup.network ? network_text(setup.options, *setup.network) + "\n" : std::string()}) {
    if (!part.empty()) fmt::print("\n{}", part);
  }
}

}  // namespace

int run_sim(const Options& options) {
  require_flags_fit(options);
  require_files_apart({{"--trace", options.trace}, {"--html", options.html}}, files_read(options), options.json);
  if (options.compare_residual) return run_compare_residual_sim(options);
  if (options.compare) {
    resolve_network(options, Link{}, UnitBytes{});  // refuses what does not go with --compare
    return run_compare_schedules(options);
  }
  const Layout layout = resolve_layout(options);
  const Depth depth = options.schedule_file ? resolve_depth_or_none(options, layout) : resolve_depth(options, layout);
  require_memory(bytes_needed(Product::simulation, layout, depth.map, resolve_policy(options, depth.map),
                              splits_backward(options)),
                 "simulating " + size_text(layout));
  Order order = resolve_order(options, layout);
  const UnitBytes bytes = resolve_bytes(options, depth.hidden);
  const CostModel costs = resolve_sim_costs(options, depth.map, bytes);
  const std::optional<NetworkModel> network = resolve_network(options, costs.link(RankId(0), RankId(0)), bytes);
  const Setup setup{options, layout, depth, std::move(order), bytes, costs, network};
  if (options.compare_cache) return run_compare_cache(setup);
  const Program program = make_program(setup);
  const Timeline timeline =
      network ? simulate_network(program, costs, *network) : simulate(program, costs, resolve_simulation(options));
  if (!options.against.empty()) {
    const int code = run_against(options, program, timeline);
    print_warnings(warnings_of(options));
    return code;
  }
  const Findings found = look_into(setup, program, timeline);
  if (!options.trace.empty()) {
    TraceOptions tracing;
    if (found.memory) tracing.device = found.memory->device;
    write_file(options.trace, [&](std::ostream& out) { write_trace(out, program, costs, timeline, tracing); });
  }
  if (!options.html.empty()) {
    write_html_page({options, setup.depth, setup.order.schedule, program, costs, network, timeline, found.report,
                     found.memory ? &found.memory->device : nullptr});
  }
  std::vector<std::string> warnings = warnings_of(options);
  if (found.memory && !found.memory->lack.empty()) warnings.push_back(found.memory->lack);
  print_warnings(warnings);
  if (options.json) {
    print_json(setup, found);
  } else {
    print_text(setup, program, found);
  }
  return 0;
}

}  // namespace plumb::cli
