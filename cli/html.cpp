// SPDX-License-Identifier: Apache-2.0
#include "html.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "cluster.hpp"
#include "costs.hpp"
#include "network.hpp"
#include "output.hpp"
#include "plumb/cache/volume.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/compare.hpp"
#include "plumb/simulator/html_page.hpp"
#include "step_end.hpp"

namespace plumb::cli {

namespace {

// What the curve may cost: events simulated for all its points, about 1.5 us each, six times that on shared networks.
constexpr double most_curve_events = 1.2e6;
constexpr double shared_network_factor = 6;
constexpr double curve_gbps[] = {3.125, 6.25, 12.5, 25, 50, 100, 200, 400};
constexpr Policy curve_policies[] = {Policy::naive, Policy::relay, Policy::cached, Policy::direct};

// 1e9 bytes per second and direction; infinite where messages occupy nothing.
double gigabytes_per_s(const Link& link, const UnitBytes& bytes) {
  if (link.value_unit.count() == 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(bytes.value) * 1e3 / static_cast<double>(link.value_unit.count());
}

// The link whose rate stands for all: the slowest between a rank and the next.
const Link& slowest_link(const CostModel& costs, int num_ranks) {
  const Link* slowest = &costs.link(RankId(0), RankId(std::min(1, num_ranks - 1)));
  for (int rank = 0; rank < num_ranks; ++rank) {
    const Link& link = costs.link(RankId(rank), RankId((rank + 1) % num_ranks));
    if (link.value_unit > slowest->value_unit) slowest = &link;
  }
  return *slowest;
}

SimTime faster(SimTime time, double factor) {
  if (time.count() == 0) return time;
  return SimTime(std::max<std::int64_t>(1, std::llround(static_cast<double>(time.count()) / factor)));
}

Link faster(const Link& link, double factor) {
  return {link.latency, faster(link.value_unit, factor), faster(link.gradient_unit, factor)};
}

// The same computations over links that are all `factor` times as fast.
CostModel with_faster_links(const CostModel& costs, const Layout& layout, double factor) {
  std::vector<ActionTimes> times;
  for (int chunk = 0; chunk < layout.num_chunks(); ++chunk) {
    const ChunkId id(chunk);
    times.push_back({costs.time_of(Op::forward, id), costs.time_of(Op::backward, id),
                     costs.time_of(Op::backward_input, id), costs.time_of(Op::backward_weight, id)});
  }
  LinkTable table{.num_ranks = layout.pp(), .links = {}, .of_pair = {}};
  std::map<std::tuple<SimTime, SimTime, SimTime>, std::uint8_t> known;
  for (int from = 0; from < layout.pp(); ++from) {
    for (int to = 0; to < layout.pp(); ++to) {
      const Link& link = costs.link(RankId(from), RankId(to));
      const auto [place, is_new] = known.try_emplace({link.latency, link.value_unit, link.gradient_unit},
                                                     static_cast<std::uint8_t>(table.links.size()));
      if (is_new) table.links.push_back(faster(link, factor));
      table.of_pair.push_back(place->second);
    }
  }
  return CostModel(std::move(times), std::move(table), costs.bytes());
}

NetworkModel with_faster_links(NetworkModel network, double factor) {
  for (NetworkResource& resource : network.resources)
    resource.bytes_per_s = std::isinf(resource.bytes_per_s)
                               ? resource.bytes_per_s
                               : std::clamp(resource.bytes_per_s * factor, 1.0, max_bytes_per_s);
  return network;
}

// How many computations and messages one point of the curve has, over all policies.
double events_per_point(const SimulatedStep& step) {
  const Layout& layout = step.program.layout;
  double computes = 0;
  for (const RankProgram& rank : step.program.ranks)
    computes += static_cast<double>(rank.compute.size());
  const double hops = 2.0 * layout.microbatches() * layout.num_chunks();
  const double units =
      2.0 * layout.microbatches() * static_cast<double>(expected_units(layout, step.depth.map, Policy::cached));
  const double events = 5 * computes + 3 * hops + 2 * units;  // cached and direct send blocks one by one
  return step.network ? events * shared_network_factor : events;
}

// Evenly spread over the range, the ends among them where there are two or more.
std::vector<double> some_of(const std::vector<double>& all, std::size_t wanted) {
  if (wanted >= all.size()) return all;
  if (wanted == 0) return {};
  if (wanted == 1) return {all[all.size() / 2]};
  std::vector<double> chosen;
  for (std::size_t i = 0; i < wanted; ++i)
    chosen.push_back(all[i * (all.size() - 1) / (wanted - 1)]);
  return chosen;
}

HtmlCurve overhead_curve(const SimulatedStep& step) {
  HtmlCurve curve;
  const int devices = step.options.cluster ? step.options.tp.value_or(1) : 1;
  curve.x_name = devices > 1 ? fmt::format("GB/s per rank of {} devices and direction", devices)
                             : std::string("GB/s per link and direction");
  curve.y_name = "step over that with a standard residual";
  if (step.depth.map.residual() == Residual::standard) {
    curve.note = "An ordinary residual stream has no blocks to route, so there is nothing to compare.";
    return curve;
  }
  if (step.program.layout.pp() == 1) {
    curve.note = "One rank sends nothing, so no policy adds anything.";
    return curve;
  }
  const double here = gigabytes_per_s(slowest_link(step.costs, step.program.layout.pp()), step.costs.bytes());
  if (std::isinf(here)) {
    curve.note =
        "Links have no rate here: give one with --hop-GBps or --unit-us to see what each policy adds to the step.";
    return curve;
  }
  const std::size_t most = 1 + std::size(curve_gbps);
  const auto affordable = static_cast<std::size_t>(most_curve_events / events_per_point(step));
  if (affordable == 0) {
    curve.note = "Simulating every policy takes too long for a page at this size: plumb sim --compare-cache does it.";
    return curve;
  }
  std::vector<double> others;
  for (const double rate : curve_gbps) {
    if (std::abs(rate / here - 1) > 0.05) others.push_back(rate);
  }
  curve.x = some_of(others, affordable - 1);
  curve.x.push_back(here);
  std::sort(curve.x.begin(), curve.x.end());
  curve.here = here;
  for (const Policy policy : curve_policies)
    curve.lines.push_back({std::string(to_string(policy)), {}});
  const SimOptions simulation = resolve_simulation(step.options);
  for (const double rate : curve.x) {
    const double factor = rate / here;
    const CostModel costs = with_faster_links(step.costs, step.program.layout, factor);
    std::optional<NetworkModel> network;
    if (step.network) network = with_faster_links(*step.network, factor);
    const std::vector<PolicyRow> rows = compare_policies(step.schedule, step.depth.map, costs, simulation,
                                                         step.options.post_ahead, network ? &*network : nullptr);
    for (std::size_t line = 0; line < std::size(curve_policies); ++line) {
      const auto row = std::find_if(rows.begin(), rows.end(),
                                    [&](const PolicyRow& one) { return one.policy == curve_policies[line]; });
      curve.lines[line].y.push_back(row->overhead_over_standard);
    }
  }
  curve.note = fmt::format(
      "Each point is a simulated step planned for that rate, all links scaled alike, over one with a standard residual "
      "of the same times.{}",
      curve.x.size() < most - 1 ? fmt::format(" At this size {} rate{} fit the time a page may take.", curve.x.size(),
                                              curve.x.size() == 1 ? "" : "s")
                                : "");
  return curve;
}

std::string counted(int count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : (what.ends_with('h') ? "es" : "s"));
}

std::vector<HtmlFact> configuration_of(const SimulatedStep& step) {
  const Options& options = step.options;
  const Layout& layout = step.program.layout;
  std::vector<HtmlFact> facts{
      {options.model ? "model" : "depth", step.depth.description},
      {"layout", fmt::format("{} x {}", counted(layout.pp(), "rank"), counted(layout.vp(), "virtual stage")),
       fmt::format("({} placement), {}", to_string(layout.placement()), counted(layout.microbatches(), "microbatch"))},
      {"schedule", step.program.schedule_name},
      {"routing", std::string(to_string(step.program.routing.policy))},
      {"microbatch", fmt::format("{} tokens", options.tokens),
       fmt::format("width {}, {}, gradients as {} on the wire", step.depth.hidden, options.dtype, options.grad_wire)},
      {"receives posted", fmt::format("{} ahead", counted(options.post_ahead, "computation"))}};
  if (options.cluster) {
    facts.push_back({"cluster", *options.cluster, cluster_text(options)});
  } else {
    facts.push_back({"costs", costs_text(options, step.costs)});
  }
  if (step.network) facts.push_back({"network", network_text(options, *step.network)});
  if (options.single_stream) facts.push_back({"streams", "one per rank: one message at a time"});
  constexpr std::size_t most_cuts = 64;
  const auto cuts = step.depth.map.cuts();
  if (cuts.size() <= most_cuts) {
    facts.push_back({"cuts", fmt::format("{}", fmt::join(cuts, ", ")), "(sublayers before each end of a chunk)"});
  } else {
    facts.push_back({"cuts", options.cuts, fmt::format("into {} chunks", layout.num_chunks())});
  }
  return facts;
}

}  // namespace

void require_html_fits(const Options& options) {
  if (options.html.empty()) return;
  const std::pair<std::string_view, bool> others[] = {{"--against", !options.against.empty()},
                                                      {"--compare", options.compare.has_value()},
                                                      {"--compare-cache", options.compare_cache},
                                                      {"--compare-residual", options.compare_residual.has_value()}};
  for (const auto& [flag, given] : others) {
    if (given) {
      throw InputError(
          fmt::format("--html shows one simulated step and does not go with {}: ask for one of them", flag));
    }
  }
}

void write_html_page(const SimulatedStep& step) {
  const Options& options = step.options;
  const Layout& layout = step.program.layout;
  HtmlPage page = make_html_page(step.program, step.costs, step.timeline, step.report,
                                 step.network ? &*step.network : nullptr, step.device);
  page.title = fmt::format("{}{}: {}, {}",
                           options.model ? *options.model : fmt::format("{} sublayers", step.depth.map.sublayers()),
                           options.cluster ? " on " + *options.cluster : "", step.program.schedule_name,
                           to_string(step.program.routing.policy));
  page.subtitle = fmt::format("{} ranks x {} virtual stages, {} microbatches, simulated", layout.pp(), layout.vp(),
                              layout.microbatches());
  page.configuration = configuration_of(step);
  if (options.cluster) {
    const std::optional<StepEnd> end = resolve_step_end(options, step.depth.map);
    const SimTime whole = with_end(step.timeline.step, end);
    if (end) {
      page.configuration.push_back({"after the pipeline", step_end_text(*end, step.timeline.step)});
      page.figures.front().detail =
          fmt::format("the pipeline alone; {} ms with what comes after it", milliseconds(whole));
    }
    const std::string rate = rate_text(options, layout, whole);
    const std::size_t comma = rate.find(", ");
    page.figures.insert(page.figures.begin() + 1,
                        {"tokens per second and device", rate.substr(0, rate.find(' ')),
                         fmt::format("over {} ms{}", milliseconds(whole),
                                     comma == std::string::npos ? "" : "; " + rate.substr(comma + 2))});
  }
  page.overhead = overhead_curve(step);
  write_file(options.html,
             [&](std::ostream& out) { write_html(out, step.program, step.costs, step.timeline, step.report, page); });
}

}  // namespace plumb::cli
