// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "auto.hpp"
#include "commands.hpp"
#include "costs.hpp"
#include "memory.hpp"
#include "output.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/compare_schedules.hpp"
#include "resolve.hpp"
#include "warnings.hpp"

namespace plumb::cli {

namespace {

constexpr std::string_view auto_name = "auto";

// A named schedule, or auto.
struct Entry {
  std::string name;
  std::optional<ScheduleKind> kind;
};

std::vector<Entry> resolve_entries(const std::string& text) {
  std::vector<Entry> entries;
  if (text == "all") {
    for (const ScheduleKind kind : all_schedule_kinds())
      entries.push_back({std::string(to_string(kind)), kind});
    return entries;
  }
  std::set<std::string_view> seen;
  std::string_view rest = text;
  while (true) {
    const std::string_view name = rest.substr(0, rest.find(','));
    Entry entry{std::string(name), std::nullopt};
    if (name != auto_name) entry.kind = named_schedule(entry.name);
    if (!seen.insert(name).second) {
      throw InputError(fmt::format("--compare '{}' names {} twice", text, name));
    }
    entries.push_back(std::move(entry));
    if (name.size() == rest.size()) {
      return entries;
    }
    rest.remove_prefix(name.size() + 1);
  }
}

void refuse_what_does_not_go(const Options& options) {
  if (options.schedule || options.placement) {
    throw InputError(fmt::format("--{} does not go with --compare, whose schedules bring their own",
                                 options.schedule ? "schedule" : "placement"));
  }
  if (options.subcommand == "plan" && options.format != "text" && options.format != "json") {
    throw InputError(
        fmt::format("--compare prints a table or --json and does not go with --format {}", options.format));
  }
  if (!options.trace.empty() || options.compare_cache || !options.against.empty()) {
    throw InputError(fmt::format("{} does not go with --compare", options.compare_cache   ? "--compare-cache"
                                                                  : options.trace.empty() ? "--against"
                                                                                          : "--trace"));
  }
}

void refuse_what_nobody_takes(const Options& options, const std::vector<Entry>& entries) {
  const auto any = [&](auto&& takes) { return std::any_of(entries.begin(), entries.end(), takes); };
  if ((options.group || options.group_rule) && !any([](const Entry& e) { return e.kind && takes_group(*e.kind); })) {
    throw InputError("--group and --group-rule go with interleaved and zb-h1 only, and --compare names neither");
  }
  if (options.memory_chunks && !any([](const Entry& e) { return !e.kind; })) {
    throw InputError("--memory-chunks is the limit of auto, which --compare does not name");
  }
}

// The virtual stages that it runs on. Auto searches on those asked for.
int stages_of(const Entry& entry, int vp) { return entry.kind ? virtual_stages_of(*entry.kind, vp) : vp; }

// One row of the comparison: the options as if that schedule had been asked for alone.
struct Single {
  Options options;
  Layout layout;
  Depth depth;
  CostModel costs;
};

Single alone(const Options& options, const Entry& entry) {
  Options own = options;
  own.schedule = entry.name;
  own.vp = stages_of(entry, options.vp);
  if (entry.kind) own.memory_chunks.reset();
  if (!entry.kind || !takes_group(*entry.kind)) {
    own.group.reset();
    own.group_rule.reset();
  }
  const Layout layout = resolve_layout(own);
  Depth depth = resolve_depth_of(own, layout);
  CostModel costs = resolve_costs(own, depth.map, resolve_bytes(own, depth.hidden), options.pp * options.vp);
  return {std::move(own), layout, std::move(depth), std::move(costs)};
}

ScheduleRow run_one(const Options& options, const Entry& entry) {
  const Single single = alone(options, entry);
  const Policy policy = resolve_policy(single.options, single.depth.map);
  require_memory(
      bytes_needed(Product::simulation, single.layout, single.depth.map, policy, splits_backward(single.options)),
      fmt::format("simulating {} with {}", entry.name, size_text(single.layout)));
  const auto simulated = [&](const Schedule& schedule) {
    return simulate_schedule(schedule, single.depth.map, policy, single.costs, options.post_ahead,
                             resolve_simulation(options));
  };
  if (entry.kind) return simulated(resolve_schedule(single.options, single.layout));
  const AutoSchedule found = search_schedule(single.options, single.layout);
  ScheduleRow row = simulated(found.schedule);
  const AutoCandidate& chosen = found.candidates[found.chosen];
  row.schedule = auto_name;
  row.chosen = chosen.name == auto_name ? fmt::format("{}, from {}", chosen.name, chosen.from) : chosen.name;
  return row;
}

// Of the V that was asked for, whose chunks the limit counts; zero if it is kept.
double chunks_beyond_limit(const Options& options, const ScheduleRow& row) {
  if (!options.memory_chunks || !row.refused.empty()) return 0;
  const double chunks = static_cast<double>(worst_peak(row.report).each.activation_chunks) * options.vp / row.vp;
  return chunks > *options.memory_chunks ? chunks : 0;
}

std::string schedule_table(const Options& options, const std::vector<ScheduleRow>& rows) {
  SimTime fastest = SimTime::max();
  for (const ScheduleRow& row : rows) {
    if (row.refused.empty() && chunks_beyond_limit(options, row) == 0) fastest = std::min(fastest, row.report.step);
  }
  Table table({"schedule", "V", "step ms", "over best", "bubble", "exposed comm ms", "peak chunks", "peak shares",
               "peak blocks", "peak bytes", "bytes/step"});
  for (const ScheduleRow& row : rows) {
    if (!row.refused.empty()) {
      table.add({row.schedule, fmt::to_string(row.vp), "-"});
      continue;
    }
    const MemoryPeak peak = worst_peak(row.report);
    const bool comparable = fastest.count() > 0 && fastest < SimTime::max();
    const double over =
        !comparable ? 0
                    : static_cast<double>((row.report.step - fastest).count()) / static_cast<double>(fastest.count());
    table.add({row.schedule, fmt::to_string(row.vp), milliseconds(row.report.step),
               row.report.step == fastest || !comparable ? "-" : fmt::format("{:+.2f} %", over * 100),
               percent(row.report.bubble_over_step), milliseconds(exposed_communication(row)),
               fmt::to_string(peak.each.activation_chunks), fmt::format("{:.2f}", row.peak_activation_shares),
               fmt::to_string(peak.each.block_units), bytes_text(static_cast<double>(peak.bytes)),
               bytes_text(static_cast<double>(row.report.bytes_per_step))});
  }
  std::string text = table.text();
  bool first = true;
  for (const ScheduleRow& row : rows) {
    if (!row.chosen.empty()) {
      text += fmt::format("{}auto chose {} ({} placement)\n", first ? "\n" : "", row.chosen, to_string(row.placement));
      first = false;
    }
    if (const double chunks = chunks_beyond_limit(options, row); chunks > 0) {
      text += fmt::format("{}{} holds {:g} chunks of V = {} on a rank, more than --memory-chunks {}\n",
                          first ? "\n" : "", row.schedule, chunks, options.vp, *options.memory_chunks);
      first = false;
    }
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
  const std::vector<Entry> entries = resolve_entries(*options.compare);
  refuse_what_nobody_takes(options, entries);
  // What is wrong for all of them is nobody's row.
  const Layout layout = resolve_layout(options);
  const Depth depth = resolve_depth_of(options, layout);
  const Policy policy = resolve_policy(options, depth.map);
  const CostModel costs = resolve_costs(options, depth.map, resolve_bytes(options, depth.hidden));
  std::vector<ScheduleRow> rows;
  for (const Entry& entry : entries) {
    try {
      rows.push_back(run_one(options, entry));
    } catch (const InputError& error) {
      const Placement placement = entry.kind ? placement_of(*entry.kind) : layout.placement();
      rows.push_back({entry.name, stages_of(entry, options.vp), placement, error.what(), {}, 0});
    }
  }
  if (std::none_of(rows.begin(), rows.end(), [](const ScheduleRow& row) { return row.refused.empty(); })) {
    throw InputError(fmt::format("none of the schedules fits; {}: {}", rows.front().schedule, rows.front().refused));
  }
  std::string text;
  if (options.json || options.format == "json") {
    text = fmt::format("{{\"costs\":\"{}\",\"schedules\":{}}}\n", costs_text(options, costs), to_json(rows));
  } else {
    text = fmt::format(
        "{}\n{} ranks, {} microbatches, routing {}; one simulated step per schedule\n{}\n"
        "a chunk is one of {} (V = {}); on other V it takes its part of that\n\n{}\n"
        "peaks are the worst rank's: chunks = activations alive; shares = the same in P-th parts of the model; blocks "
        "and bytes = what the cache holds\n",
        depth.description, layout.pp(), layout.microbatches(), to_string(policy), costs_text(options, costs),
        layout.num_chunks(), layout.vp(), schedule_table(options, rows));
  }
  write_output(options.output, text);
  print_warnings(warnings_of(options));
  return 0;
}

}  // namespace plumb::cli
