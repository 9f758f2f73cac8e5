// SPDX-License-Identifier: Apache-2.0
#include "sim_text.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cluster.hpp"
#include "costs.hpp"
#include "output.hpp"
#include "step_end.hpp"

namespace plumb::cli {

namespace {

constexpr std::size_t most_links = 8;

bool has_weight_part(const SimReport& report) {
  return std::any_of(report.ranks.begin(), report.ranks.end(),
                     [](const RankReport& rank) { return rank.work.backward_weight > SimTime(0); });
}

std::string times_table(const SimReport& report) {
  const bool split = has_weight_part(report);
  std::vector<std::string> header{"rank", "F ms", split ? "I, B ms" : "B ms"};
  if (split) header.emplace_back("W ms");
  header.insert(header.end(), {"idle ms", "wait ms", "queue ms", "wire ms", "peak activations", "peak blocks",
                               "peak gradients", "peak bytes"});
  Table table(std::move(header));
  for (const RankReport& rank : report.ranks) {
    std::vector<std::string> row{fmt::to_string(rank.rank.value), milliseconds(rank.work.forward),
                                 milliseconds(rank.work.backward)};
    if (split) row.push_back(milliseconds(rank.work.backward_weight));
    row.insert(row.end(),
               {milliseconds(rank.bubble.total() - rank.bubble.waiting), milliseconds(rank.exposed.wait),
                milliseconds(rank.exposed.queue), milliseconds(rank.exposed.wire),
                fmt::to_string(rank.memory.each.activation_chunks), fmt::to_string(rank.memory.each.block_units),
                fmt::to_string(rank.memory.each.gradient_units), bytes_text(static_cast<double>(rank.memory.bytes))});
    table.add(std::move(row));
  }
  return table.text();
}

// A rank is tp x dp devices: of one replica the tp share each message and each slot.
std::string whose_bytes(const Options& options) {
  const int tp = options.tp.value_or(1);
  const int dp = options.dp.value_or(1);
  if (!options.cluster || tp * dp == 1) return "";
  return fmt::format("bytes here and of links are those of a rank{}{}; GiB by class are those of one device",
                     tp == 1 ? "" : fmt::format(", all its {} tensor-parallel devices together", tp),
                     dp == 1 ? "" : fmt::format(", in one of {} replicas", dp));
}

double busy_share(const LinkLoad& load, SimTime step) {
  return step > SimTime(0) ? static_cast<double>(load.busy.count()) / static_cast<double>(step.count()) : 0;
}

}  // namespace

void print_report(const Options& options, const Depth& depth, const Program& program, const SimReport& report,
                  const std::optional<StepEnd>& end) {
  fmt::print("{}\n{}, {} ranks x {} virtual stages, {} microbatches, routing {}\n", depth.description,
             program.schedule_name, program.layout.pp(), program.layout.vp(), program.layout.microbatches(),
             to_string(program.routing.policy));
  if (options.cluster || options.profile) fmt::print("{}\n", cluster_text(options));
  fmt::print("\n");
  fmt::print("{} {} ms; idle {} of {}, {} of the work\n", end ? "pipeline" : "step", milliseconds(report.step),
             percent(report.bubble_over_step), end ? "it" : "the step", percent(report.bubble_over_ideal));
  if (end) fmt::print("{}\n", step_end_text(*end, report.step));
  if (options.cluster) fmt::print("{}\n", rate_text(options, program.layout, with_end(report.step, end)));
  fmt::print("idle per rank (mean, ms): warm-up {}, steady {}, cool-down {}, waiting for messages {}\n",
             milliseconds(report.bubble.warmup), milliseconds(report.bubble.steady),
             milliseconds(report.bubble.cooldown), milliseconds(report.bubble.waiting));
  fmt::print("traffic: {:g} units forward and {:g} backward per microbatch, {} per step, {} the formula\n\n",
             report.forward_units_per_microbatch, report.backward_units_per_microbatch,
             bytes_text(static_cast<double>(report.bytes_per_step)),
             report.traffic_equals_formula ? "equal to" : "NOT");
  fmt::print("{}", times_table(report));
  if (const std::string whose = whose_bytes(options); !whose.empty()) fmt::print("{}\n", whose);
}

std::string links_text(const LinkLoads& loads, SimTime step) {
  std::vector<LinkLoad> links = loads.links;
  std::stable_sort(links.begin(), links.end(), [](const LinkLoad& a, const LinkLoad& b) { return a.busy > b.busy; });
  if (links.empty() || links.front().busy == SimTime(0)) return "";
  const std::size_t shown = std::min(links.size(), most_links);
  Table table({"link", "messages", "bytes", "busy", "mean use"});
  for (std::size_t i = 0; i < shown; ++i) {
    const LinkLoad& load = links[i];
    table.add({load.name, fmt::to_string(load.num_messages), bytes_text(static_cast<double>(load.bytes)),
               percent(busy_share(load, step)), load.bytes_per_s > 0 ? percent(mean_use(load, step)) : "-"});
  }
  std::string text = table.text();
  if (shown < links.size()) {
    text +=
        fmt::format("and {} more, at most {} busy\n", links.size() - shown, percent(busy_share(links[shown], step)));
  }
  for (const TierLoad& tier : loads.tiers)
    text += fmt::format("through {}: {} messages, {}\n", tier.name, tier.num_messages,
                        bytes_text(static_cast<double>(tier.bytes)));
  return text;
}

std::string links_json(const LinkLoads& loads, SimTime step) {
  std::vector<std::string> links;
  for (const LinkLoad& load : loads.links) {
    links.push_back(fmt::format(R"({{"link":"{}","messages":{},"bytes":{},"busy_us":{},"busy_over_step":{}}})",
                                load.name, load.num_messages, load.bytes, to_us(load.busy), busy_share(load, step)));
    if (load.bytes_per_s > 0) {
      links.back().pop_back();
      links.back() += fmt::format(R"(,"bytes_per_s":{},"mean_use":{}}})", load.bytes_per_s, mean_use(load, step));
    }
  }
  std::vector<std::string> tiers;
  for (const TierLoad& tier : loads.tiers)
    tiers.push_back(
        fmt::format(R"({{"tier":"{}","messages":{},"bytes":{}}})", tier.name, tier.num_messages, tier.bytes));
  return fmt::format(R"("links":[{}],"tiers":[{}])", fmt::join(links, ","), fmt::join(tiers, ","));
}

void print_comparison(const Depth& depth, const Schedule& schedule, const std::vector<PolicyRow>& rows) {
  fmt::print("{}\n{}, {} ranks x {} virtual stages, {} microbatches; one simulated step per routing policy\n\n",
             depth.description, schedule.name, schedule.layout.pp(), schedule.layout.vp(),
             schedule.layout.microbatches());
  const bool has_device = rows.front().device_peak.bytes() > 0;
  std::vector<std::string> header{"policy",        has_device ? "pipeline ms" : "step ms",
                                  "over standard", "bubble",
                                  "exposed ms",    "units/microbatch",
                                  "bytes/step",    "peak blocks",
                                  "= formula"};
  if (has_device) header.insert(header.end() - 1, "device GiB");
  Table table(std::move(header));
  for (const PolicyRow& row : rows) {
    const bool standard = row.policy == Policy::standard;
    std::vector<std::string> cells{std::string(to_string(row.policy)),
                                   milliseconds(row.report.step),
                                   standard ? "-" : fmt::format("{:+.2f} %", row.overhead_over_standard * 100),
                                   percent(row.report.bubble_over_step),
                                   milliseconds(row.report.bubble.waiting),
                                   fmt::format("{:g}", row.report.forward_units_per_microbatch),
                                   bytes_text(static_cast<double>(row.report.bytes_per_step)),
                                   fmt::to_string(worst_peak(row.report).each.block_units)};
    if (has_device) cells.push_back(fmt::format("{:.2f}", static_cast<double>(row.device_peak.bytes()) / (1 << 30)));
    cells.emplace_back(row.report.traffic_equals_formula ? "yes" : "NO");
    table.add(std::move(cells));
  }
  fmt::print("{}", table.text());
}

}  // namespace plumb::cli
