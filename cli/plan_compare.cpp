// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "commands.hpp"
#include "costs.hpp"
#include "output.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/compare_schedules.hpp"
#include "resolve.hpp"

namespace plumb::cli {

namespace {

std::vector<ScheduleKind> resolve_kinds(const std::string& text) {
  if (text == "all") {
    return {all_schedule_kinds().begin(), all_schedule_kinds().end()};
  }
  std::vector<ScheduleKind> kinds;
  std::set<ScheduleKind> seen;
  std::string_view rest = text;
  while (true) {
    const std::string_view name = rest.substr(0, rest.find(','));
    const ScheduleKind kind = parse_schedule_kind(name);
    if (!seen.insert(kind).second) {
      throw InputError(fmt::format("--compare '{}' names {} twice", text, name));
    }
    kinds.push_back(kind);
    if (name.size() == rest.size()) {
      return kinds;
    }
    rest.remove_prefix(name.size() + 1);
  }
}

void refuse_what_does_not_go(const Options& options) {
  if (options.costs || options.memory_chunks) {
    throw InputError(fmt::format("{} does not go with --compare: `plumb sim --schedule auto` compares under it",
                                 options.costs ? "--costs" : "--memory-chunks"));
  }
  if (options.schedule || options.placement) {
    throw InputError(fmt::format("--{} does not go with --compare, whose schedules bring their own",
                                 options.schedule ? "schedule" : "placement"));
  }
  if (options.subcommand == "plan" && options.format != "text" && options.format != "json") {
    throw InputError(
        fmt::format("--compare prints a table or --json and does not go with --format {}", options.format));
  }
  if (!options.trace.empty() || options.compare_cache) {
    throw InputError(
        fmt::format("{} does not go with --compare", options.compare_cache ? "--compare-cache" : "--trace"));
  }
}

// One schedule of the comparison: the options as if it had been asked for alone.
ScheduleRow run_one(const Options& options, ScheduleKind kind, int vp, const ActionTimes& average, bool with_group) {
  Options alone = options;
  alone.schedule = std::string(to_string(kind));
  alone.vp = vp;
  if (!with_group) {
    alone.group.reset();
    alone.group_rule.reset();
  }
  const Layout layout = resolve_layout(alone);
  const Depth depth = resolve_depth(alone, layout);
  const UnitBytes bytes = resolve_bytes(alone, depth.hidden);
  const CostModel costs(times_by_depth(average, options.pp * options.vp, depth.map), resolve_link(alone, bytes), bytes);
  return simulate_schedule(resolve_schedule(alone, layout), depth.map, resolve_policy(alone, depth.map), costs,
                           options.post_ahead);
}

std::string table_of(const std::vector<ScheduleRow>& rows) {
  SimTime fastest = SimTime::max();
  for (const ScheduleRow& row : rows) {
    if (row.refused.empty()) fastest = std::min(fastest, row.report.step);
  }
  Table table({"schedule", "V", "step ms", "over best", "bubble", "exposed comm ms", "peak chunks", "peak shares",
               "peak blocks", "peak bytes", "bytes/step"});
  for (const ScheduleRow& row : rows) {
    if (!row.refused.empty()) {
      table.add({row.schedule, fmt::to_string(row.vp), "-"});
      continue;
    }
    const MemoryPeak peak = worst_peak(row.report);
    const double over = fastest.count() == 0 ? 0
                                             : static_cast<double>((row.report.step - fastest).count()) /
                                                   static_cast<double>(fastest.count());
    table.add({row.schedule, fmt::to_string(row.vp), milliseconds(row.report.step),
               row.report.step == fastest ? "-" : fmt::format("+{}", percent(over)),
               percent(row.report.bubble_over_step), milliseconds(exposed_communication(row)),
               fmt::to_string(peak.each.activation_chunks), fmt::format("{:.2f}", row.peak_activation_shares),
               fmt::to_string(peak.each.block_units), bytes_text(static_cast<double>(peak.bytes)),
               bytes_text(static_cast<double>(row.report.bytes_per_step))});
  }
  std::string text = table.text();
  bool first = true;
  for (const ScheduleRow& row : rows) {
    if (!row.refused.empty()) {
      text += fmt::format("{}{} does not fit: {}\n", first ? "\n" : "", row.schedule, row.refused);
      first = false;
    }
  }
  return text;
}

}  // namespace

int run_compare_schedules(const Options& options) {
  refuse_what_does_not_go(options);
  const std::vector<ScheduleKind> kinds = resolve_kinds(*options.compare);
  const bool any_group = std::any_of(kinds.begin(), kinds.end(), takes_group);
  if ((options.group || options.group_rule) && !any_group) {
    throw InputError("--group and --group-rule go with interleaved and zb-h1 only, and --compare names neither");
  }
  const Layout layout = resolve_layout(options);  // a wrong P, V or M is nobody's row
  const ActionTimes average = resolve_times(options);
  std::string description;
  std::vector<ScheduleRow> rows;
  for (const ScheduleKind kind : kinds) {
    const int vp = virtual_stages_of(kind, options.vp);
    try {
      rows.push_back(run_one(options, kind, vp, average, takes_group(kind)));
    } catch (const InputError& error) {
      rows.push_back({std::string(to_string(kind)), vp, placement_of(kind), error.what(), {}, 0});
    }
  }
  if (std::none_of(rows.begin(), rows.end(), [](const ScheduleRow& row) { return row.refused.empty(); })) {
    throw InputError(fmt::format("none of the schedules fits; {}: {}", rows.front().schedule, rows.front().refused));
  }
  std::string text;
  if (options.json || options.format == "json") {
    text = fmt::format("{{\"schedules\":{}}}\n", to_json(rows));
  } else {
    text = fmt::format(
        "{}\n{} ranks, {} microbatches, routing {}; one simulated step per schedule\nF, I, W, B = {:g}, {:g}, {:g}, "
        "{:g} "
        "us for an average chunk of {} (V = {}); every chunk in proportion to its sublayers\n\n{}\n"
        "peaks are the worst rank's: chunks = activations alive; shares = the same in P-th parts of the model; blocks "
        "and bytes = what the cache holds\n",
        resolve_depth(options, layout).description, layout.pp(), layout.microbatches(),
        to_string(resolve_policy(options, resolve_depth(options, layout).map)), to_us(average.forward),
        to_us(average.backward_input), to_us(average.backward_weight), to_us(average.backward), layout.num_chunks(),
        layout.vp(), table_of(rows));
  }
  write_output(options.output, text);
  return 0;
}

}  // namespace plumb::cli
