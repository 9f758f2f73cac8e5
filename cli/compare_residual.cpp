// SPDX-License-Identifier: Apache-2.0
#include "compare_residual.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "auto.hpp"
#include "cluster.hpp"
#include "costs.hpp"
#include "memory.hpp"
#include "network.hpp"
#include "output.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/compare.hpp"
#include "plumb/simulator/network.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/simulate.hpp"
#include "plumb/sizing/residual_io.hpp"
#include "plumb/sizing/residual_traffic.hpp"
#include "resolve.hpp"
#include "warnings.hpp"

namespace plumb::cli {

namespace {

// Under attnres-full, S is the batch of sublayers of the paper's two phases.
bool uses_block_size(const ResidualDesign& design) {
  return takes_block_size(design) || design.kind == ResidualKind::attnres_full;
}

std::vector<ResidualDesign> resolve_list(const Options& options) {
  const std::string& text = *options.compare_residual;
  std::vector<ResidualDesign> designs;
  if (text == "all") return all_residual_designs();
  std::string_view rest = text;
  while (true) {
    const std::string_view name = rest.substr(0, rest.find(','));
    const ResidualDesign design = parse_residual_design(name);
    if (std::find(designs.begin(), designs.end(), design) != designs.end()) {
      throw InputError(fmt::format("--compare-residual '{}' names {} twice", text, name));
    }
    designs.push_back(design);
    if (name.size() == rest.size()) break;
    rest.remove_prefix(name.size() + 1);
  }
  if ((options.block || options.block_layers) && std::none_of(designs.begin(), designs.end(), uses_block_size)) {
    throw InputError(fmt::format("{} is of attnres-block and attnres-full, of which --compare-residual names none",
                                 options.block ? "--block" : "--block-layers"));
  }
  return designs;
}

// The options as if that design had been asked for alone.
Options alone(const Options& options, const ResidualDesign& design) {
  Options own = options;
  own.compare_residual.reset();
  own.residual = to_string(design);
  if (!takes_block_size(design)) {
    own.block.reset();
    own.block_layers.reset();
  }
  if (lowered(design) == Residual::standard) own.cache.reset();
  return own;
}

struct DesignTraffic {
  ResidualDesign design;
  std::vector<ResidualTraffic> traffic;
  ResidualIo io;
  UnitBytes bytes;  // of a value

  double forward_bytes(const ResidualTraffic& row) const {
    return static_cast<double>(row.forward_units) * static_cast<double>(bytes.value);
  }
  double backward_bytes(const ResidualTraffic& row) const {
    return static_cast<double>(row.backward_units) * static_cast<double>(bytes.gradient_wire);
  }
};

DesignTraffic count(const Options& options, const Layout& layout, const ResidualDesign& design) {
  const Options own = alone(options, design);
  const Depth depth = resolve_depth(own, layout);
  int block = 1;
  if (uses_block_size(design)) {
    block = resolve_depth(alone(options, {.kind = ResidualKind::attnres_block}), layout).map.block_sublayers();
  }
  DesignTraffic counted{.design = design,
                        .traffic = {},
                        .io = residual_io(design, depth.map.sublayers(), block),
                        .bytes = resolve_bytes(own, depth.hidden)};
  for (const Policy policy : policies_of(depth.map.residual())) {
    require_memory(bytes_needed(Product::routing, layout, depth.map, policy, false),
                   fmt::format("counting {} of {}", to_string(design), size_text(layout)));
    counted.traffic.push_back(residual_traffic(layout, depth.map, policy));
  }
  return counted;
}

std::string traffic_table(const std::vector<DesignTraffic>& designs) {
  Table table(
      {"residual", "policy", "tensors", "peak hop", "resident", "forward bytes", "backward bytes", "= formula"});
  for (const DesignTraffic& counted : designs) {
    const std::int64_t m = counted.design.num_streams;
    for (const ResidualTraffic& row : counted.traffic) {
      table.add({&row == &counted.traffic.front() ? to_string(counted.design) : "",
                 row.policy == Policy::standard ? "-" : std::string(to_string(row.policy)),
                 fmt::to_string(m * row.forward_units), fmt::to_string(m * row.peak_hop_units),
                 fmt::to_string(m * row.resident_units), bytes_text(counted.forward_bytes(row)),
                 bytes_text(counted.backward_bytes(row)), row.equals_formula() ? "yes" : "NO"});
    }
  }
  return table.text();
}

std::string io_table(const std::vector<DesignTraffic>& designs) {
  Table table({"residual", "rows by tables", "formula", "from", "rows fused", "formula, fused"});
  for (const DesignTraffic& counted : designs) {
    const ResidualIo& io = counted.io;
    table.add({to_string(counted.design), fmt::format("{:.2f}", io.published), io.published_formula, io.published_by,
               fmt::format("{:.2f}", io.fused), io.fused_formula});
  }
  return table.text();
}

std::string json_of(const DesignTraffic& counted) {
  std::string policies;
  const std::int64_t m = counted.design.num_streams;
  for (const ResidualTraffic& row : counted.traffic) {
    policies += fmt::format(
        R"({}"{}":{{"units":{},"tensors":{},"peak_hop_tensors":{},"resident_tensors":{},"forward_bytes":{:.0f},)"
        R"("backward_bytes":{:.0f},"equals_formula":{}}})",
        policies.empty() ? "" : ",", to_string(row.policy), row.forward_units, m * row.forward_units,
        m * row.peak_hop_units, m * row.resident_units, counted.forward_bytes(row), counted.backward_bytes(row),
        row.equals_formula());
  }
  const ResidualIo& io = counted.io;
  return fmt::format(
      R"({{"residual":"{}","tensors_per_unit":{},"policies":{{{}}},"io":{{"published_rows":{},"published_formula":"{}",)"
      R"("published_by":"{}","fused_rows":{},"fused_formula":"{}"}}}})",
      to_string(counted.design), m, policies, io.published, io.published_formula, io.published_by, io.fused,
      io.fused_formula);
}

struct Simulated {
  ResidualDesign design;
  Policy policy = Policy::standard;
  double over_standard = 0;
  SimReport report;
};

Simulated simulate_design(const Options& options, const Layout& layout, const Schedule& schedule,
                          const ResidualDesign& design) {
  const Options own = alone(options, design);
  const Depth depth = resolve_depth(own, layout);
  const Policy policy = resolve_policy(own, depth.map);
  require_memory(bytes_needed(Product::simulation, layout, depth.map, policy, splits_backward(own)),
                 fmt::format("simulating {} of {}", to_string(design), size_text(layout)));
  const CostModel costs = resolve_sim_costs(own, depth.map, resolve_bytes(own, depth.hidden));
  const std::optional<NetworkModel> network = resolve_network(own, costs.link(RankId(0), RankId(0)), costs.bytes());
  const SimOptions simulation = resolve_simulation(own);
  PlanCosts plan = costs.plan_costs();
  const NetworkModel* shared = network ? &*network : nullptr;
  plan.duplex = planned_duplex(simulation, shared);
  const Program program = lower(schedule, depth.map, policy, {.post_ahead = own.post_ahead, .costs = plan});
  const Timeline timeline = shared ? simulate_network(program, costs, *shared) : simulate(program, costs, simulation);
  return {design, policy, 0, make_report(program, costs, timeline, shared)};
}

void refuse_beside_residuals(const Options& options) {
  const std::pair<std::string_view, bool> given[] = {{"--trace", !options.trace.empty()},
                                                     {"--against", !options.against.empty()},
                                                     {"--compare", options.compare.has_value()},
                                                     {"--compare-cache", options.compare_cache},
                                                     {"--show-cluster", options.show_cluster},
                                                     {"--schedule auto", wants_auto(options)},
                                                     {"--memory-chunks", options.memory_chunks.has_value()}};
  for (const auto& [flag, is_given] : given) {
    if (is_given) throw InputError(fmt::format("{} does not go with --compare-residual", flag));
  }
}

std::string json_of(const Simulated& row) {
  const MemoryPeak peak = worst_peak(row.report);
  const std::int64_t m = row.design.num_streams;
  return fmt::format(
      R"({{"residual":"{}","cache":"{}","step_us":{},"overhead_over_standard":{},"bubble_over_step":{},)"
      R"("forward_tensors_per_microbatch":{},"bytes_per_step":{},"peak_resident_tensors":{},"peak_gradient_tensors":{},)"
      R"("peak_bytes":{},"traffic_equals_formula":{}}})",
      to_string(row.design), to_string(row.policy), to_us(row.report.step), row.over_standard,
      row.report.bubble_over_step, static_cast<double>(m) * row.report.forward_units_per_microbatch,
      row.report.bytes_per_step, m * peak.value_slots, m * peak.gradient_slots, peak.bytes,
      row.report.traffic_equals_formula);
}

std::string residual_table(const std::vector<Simulated>& rows) {
  Table table({"residual", "policy", "step ms", "over standard", "bubble", "tensors/microbatch", "bytes/step",
               "peak tensors", "peak bytes", "= formula"});
  for (const Simulated& row : rows) {
    const MemoryPeak peak = worst_peak(row.report);
    const std::int64_t m = row.design.num_streams;
    table.add({to_string(row.design), row.policy == Policy::standard ? "-" : std::string(to_string(row.policy)),
               milliseconds(row.report.step), fmt::format("{:+.2f} %", row.over_standard * 100),
               percent(row.report.bubble_over_step),
               fmt::format("{:g}", static_cast<double>(m) * row.report.forward_units_per_microbatch),
               bytes_text(static_cast<double>(row.report.bytes_per_step)), fmt::to_string(m * peak.value_slots),
               bytes_text(static_cast<double>(peak.bytes)), row.report.traffic_equals_formula ? "yes" : "NO"});
  }
  return table.text();
}

template <class Row>
std::string json_list(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows)
    text += (text.empty() ? "" : ",") + json_of(row);
  return text;
}

int compare_traffic(const Options& options) {
  const Layout layout = resolve_layout(options);
  std::vector<DesignTraffic> designs;
  for (const ResidualDesign& design : resolve_list(options))
    designs.push_back(count(options, layout, design));
  if (options.json) {
    fmt::print("{{\"designs\":[{}]}}\n", json_list(designs));
    return 0;
  }
  const Depth depth = resolve_depth(alone(options, {.kind = ResidualKind::standard}), layout);
  fmt::print(
      "{}\n{} ranks x {} virtual stages = {} chunks ({} placement); [tokens, d] tensors per microbatch, forward\n\n{}\n"
      "resident: on the fullest rank at the end of a microbatch's forward; plumb sim has the peak over a step\n\n{}\n"
      "rows of d elements read and written per token and sublayer, forward. By the papers' tables the write of a\n"
      "sublayer's input is left out; fused, the least of one kernel between two sublayers, it is counted. "
      "docs/residuals.md\n",
      depth.description, layout.pp(), layout.vp(), layout.num_chunks(), to_string(layout.placement()),
      traffic_table(designs), io_table(designs));
  return 0;
}

int compare_simulated(const Options& options) {
  refuse_beside_residuals(options);
  const std::vector<ResidualDesign> designs = resolve_list(options);
  const bool routes = std::any_of(designs.begin(), designs.end(),
                                  [](const ResidualDesign& design) { return lowered(design) != Residual::standard; });
  if (options.cache && !routes) {
    throw InputError("--cache routes blocks, which none of the designs of --compare-residual has");
  }
  const Layout layout = resolve_layout(options);
  const Schedule schedule = resolve_schedule(options, layout);
  const ResidualDesign plain{.kind = ResidualKind::standard};
  const auto standard = static_cast<double>(simulate_design(options, layout, schedule, plain).report.step.count());
  std::vector<Simulated> rows;
  for (const ResidualDesign& design : designs) {
    rows.push_back(simulate_design(options, layout, schedule, design));
    Simulated& row = rows.back();
    if (standard > 0) row.over_standard = static_cast<double>(row.report.step.count()) / standard - 1;
  }
  print_warnings(warnings_of(options));
  if (options.json) {
    fmt::print("{{\"designs\":[{}]}}\n", json_list(rows));
    return 0;
  }
  const Depth depth = resolve_depth(alone(options, plain), layout);
  fmt::print("{}\n{}, {} ranks x {} virtual stages, {} microbatches; one simulated step per residual design\n",
             depth.description, schedule.name, layout.pp(), layout.vp(), layout.microbatches());
  if (options.cluster || options.profile) fmt::print("{}\n", cluster_text(options));
  fmt::print("\n{}\n{}\n", residual_table(rows),
             options.cluster && !options.profile
                 ? "the times of chunks contain what each design reads and writes, not its small products"
                 : "computations take the same under every design: what the design itself computes is not in them");
  return 0;
}

// Each design is asked for as by --residual, and refused so.
int in_own_words(const Options& options, int (*compare)(const Options&)) {
  constexpr std::string_view theirs = "--residual ";
  if (options.residual) throw InputError("--residual names one design and does not go with --compare-residual");
  try {
    return compare(options);
  } catch (const InputError& error) {
    std::string why = error.what();
    for (std::size_t at = why.find(theirs); at != std::string::npos; at = why.find(theirs, at + 1)) {
      const std::string_view ours = "--compare-residual ";
      why.replace(at, theirs.size(), ours);
      at += ours.size() - theirs.size();
    }
    throw InputError(why);
  }
}

}  // namespace

int run_compare_residual_volume(const Options& options) { return in_own_words(options, compare_traffic); }

int run_compare_residual_sim(const Options& options) { return in_own_words(options, compare_simulated); }

}  // namespace plumb::cli
