// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "commands.hpp"
#include "output.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/cache/volume.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/compare.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/simulate.hpp"
#include "plumb/simulator/trace.hpp"
#include "resolve.hpp"

namespace plumb::cli {

namespace {

double parse_number(std::string_view flag, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw InputError(fmt::format("{}: '{}' is not a number", flag, text));
  }
  return value;
}

// "F=1000,I=1000,W=1000"; what is not named keeps its default of 1000.
ActionTimes resolve_times(const std::string& text) {
  std::map<char, double> given;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    if (item.size() < 3 || item[1] != '=' || std::string_view("FBIW").find(item[0]) == std::string_view::npos) {
      throw InputError(
          fmt::format("--action-us '{}': '{}' is not OP=MICROSECONDS with OP one of F, B, I, W", text, item));
    }
    if (!given.emplace(item[0], parse_number("--action-us", item.substr(2))).second) {
      throw InputError(fmt::format("--action-us '{}' names {} twice", text, item[0]));
    }
  }
  const auto time = [&](char op) {
    const auto found = given.find(op);
    return from_us(found == given.end() ? 1000.0 : found->second, fmt::format("--action-us {}", op));
  };
  ActionTimes times = action_times(time('F'), time('I'), time('W'));
  if (given.contains('B')) {
    times.backward = time('B');
  }
  return times;
}

Link resolve_link(const Options& options, const UnitBytes& bytes) {
  const SimTime latency = from_us(options.hop_us, "--hop-us");
  if (options.unit_us && options.hop_gbps) {
    throw InputError("--unit-us and --hop-GBps exclude each other");
  }
  if (options.unit_us) {
    return link_from_unit_time(latency, from_us(*options.unit_us, "--unit-us"), bytes);
  }
  const std::string rate = options.hop_gbps.value_or("50");
  return link_from_rate(
      latency, rate == "inf" ? std::numeric_limits<double>::infinity() : parse_number("--hop-GBps", rate), bytes);
}

std::string percent(double fraction) { return fmt::format("{:.2f} %", fraction * 100); }

std::string milliseconds(SimTime time) { return fmt::format("{:.3f}", to_us(time) / 1000); }

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

void print_report(const Depth& depth, const Program& program, const SimReport& report) {
  fmt::print("{}\n{}, {} ranks x {} virtual stages, {} microbatches, routing {}\n\n", depth.description,
             program.schedule_name, program.layout.pp(), program.layout.vp(), program.layout.microbatches(),
             to_string(program.routing.policy));
  fmt::print("step {} ms; idle {} of the step, {} of the work\n", milliseconds(report.step),
             percent(report.bubble_over_step), percent(report.bubble_over_ideal));
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
  const Layout layout = resolve_layout(options);
  const Schedule schedule = resolve_schedule(options, layout);
  const Depth depth = resolve_depth(options, layout);
  const UnitBytes bytes = resolve_bytes(options, depth.hidden);
  const CostModel costs(resolve_times(options.action_us), resolve_link(options, bytes), bytes);
  if (options.compare_cache) {
    if (!options.trace.empty()) {
      throw InputError("--trace shows one policy and does not go with --compare-cache");
    }
    if (options.cache) {
      throw InputError("--cache names one policy and does not go with --compare-cache, which runs them all");
    }
    const std::vector<PolicyRow> rows = compare_policies(schedule, depth.map, costs, {}, options.post_ahead);
    if (options.json) {
      fmt::print("{{\"policies\":{}}}\n", to_json(rows));
    } else {
      print_comparison(depth, schedule, rows);
    }
    return 0;
  }
  const Program program = lower(schedule, depth.map, resolve_policy(options, depth.map),
                                {.post_ahead = options.post_ahead, .costs = costs.plan_costs()});
  const Timeline timeline = simulate(program, costs);
  const SimReport report = make_report(program, costs, timeline);
  if (!options.trace.empty()) {
    write_file(options.trace, [&](std::ostream& out) { write_trace(out, program, costs, timeline); });
  }
  if (options.json) {
    fmt::print("{}\n", to_json(report));
  } else {
    print_report(depth, program, report);
  }
  return 0;
}

}  // namespace plumb::cli
