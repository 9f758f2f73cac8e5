// SPDX-License-Identifier: Apache-2.0
#include "costs.hpp"

#include <charconv>
#include <limits>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "cluster.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/compare_schedules.hpp"
#include "plumb/sizing/layer_costs.hpp"
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

ActionTimes scaled(const ActionTimes& times, double share) {
  const auto part = [&](SimTime time) { return from_us(to_us(time) * share, "the time of a chunk"); };
  return {part(times.forward), part(times.backward), part(times.backward_input), part(times.backward_weight)};
}

std::vector<ActionTimes> times_of_chunks(const Options& options, const DepthMap& depth, int asked_chunks) {
  const std::string costs = options.costs.value_or("");
  if (options.costs && costs != "model" && costs != "depth") {
    throw InputError(fmt::format("--costs '{}' is unknown, legal are depth and model", costs));
  }
  if (options.teraflops && costs != "model") throw InputError("--teraflops goes with --costs model only");
  if (costs == "depth") return times_by_depth(resolve_times(options), asked_chunks, depth);
  if (!options.costs) {
    const ActionTimes times = resolve_times(options);
    if (asked_chunks == depth.num_chunks()) return {times};
    return {scaled(times, static_cast<double>(asked_chunks) / depth.num_chunks())};
  }
  if (!options.model) throw InputError("--costs model needs --model, whose layers it counts");
  if (!options.action_us.empty()) throw InputError("--costs model and --action-us exclude each other");
  return chunk_times(
      load_shape(*options.model), depth.cuts(),
      {.tokens = options.tokens, .sequence = options.tokens, .teraflops = options.teraflops.value_or(400)});
}

// Who gives a whole backward means its two parts by it: halves, or what the one that is given leaves.
void complete_backward(const std::string& text, std::map<char, double>& given) {
  const auto whole = given.find('B');
  if (whole == given.end() || (given.contains('I') && given.contains('W'))) return;
  if (!given.contains('I') && !given.contains('W')) {
    given['I'] = given['W'] = whole->second / 2;
    return;
  }
  const char known = given.contains('I') ? 'I' : 'W';
  if (given[known] > whole->second) {
    throw InputError(fmt::format("--action-us '{}': {} is a part of B and takes longer than it; legal: 0..{}", text,
                                 known, whole->second));
  }
  given[known == 'I' ? 'W' : 'I'] = whole->second - given[known];
}

}  // namespace

ActionTimes resolve_times(const Options& options) {
  const std::string& text = options.action_us;
  std::map<char, double> given;
  std::string_view rest = text;
  for (bool more = !text.empty(); more;) {
    const std::string_view item = rest.substr(0, rest.find(','));
    more = item.size() < rest.size();
    rest.remove_prefix(item.size() + (more ? 1 : 0));
    if (item.size() < 3 || item[1] != '=' || std::string_view("FBIW").find(item[0]) == std::string_view::npos) {
      throw InputError(
          fmt::format("--action-us '{}': '{}' is not OP=MICROSECONDS with OP one of F, B, I, W", text, item));
    }
    if (!given.emplace(item[0], parse_number("--action-us", item.substr(2))).second) {
      throw InputError(fmt::format("--action-us '{}' names {} twice", text, item[0]));
    }
  }
  complete_backward(text, given);
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

bool gives_link(const Options& options) { return options.hop_us || options.hop_gbps || options.unit_us; }

Link resolve_link(const Options& options, const UnitBytes& bytes) {
  const SimTime latency = from_us(options.hop_us.value_or(200), "--hop-us");
  if (options.unit_us && options.hop_gbps) {
    throw InputError("--unit-us and --hop-GBps exclude each other");
  }
  if (options.unit_us) {
    // Of one [tokens, d] tensor, of which a value may have several.
    const double value_us = *options.unit_us * resolve_design(options).num_streams;
    return link_from_unit_time(latency, from_us(value_us, "--unit-us"), bytes);
  }
  const std::string rate = options.hop_gbps.value_or("50");
  return link_from_rate(
      latency, rate == "inf" ? std::numeric_limits<double>::infinity() : parse_number("--hop-GBps", rate), bytes);
}

CostModel resolve_sim_costs(const Options& options, const DepthMap& depth, const UnitBytes& bytes,
                            std::optional<int> asked_chunks) {
  require_cost_flags_fit(options);
  if (options.cluster || options.profile) return resolve_cluster_costs(options, depth, bytes);
  return CostModel(times_of_chunks(options, depth, asked_chunks.value_or(depth.num_chunks())),
                   resolve_link(options, bytes), bytes);
}

CostModel resolve_plan_costs(const Options& options, const DepthMap& depth, const UnitBytes& bytes,
                             std::optional<int> asked_chunks) {
  return CostModel(times_of_chunks(options, depth, asked_chunks.value_or(depth.num_chunks())),
                   gives_link(options) ? resolve_link(options, bytes) : Link{}, bytes);
}

SimOptions resolve_simulation(const Options& options) {
  SimOptions simulation;
  if (options.single_stream) {
    simulation.order = ChannelOrder::single_stream;
    simulation.duplex = Duplex::half;
  }
  return simulation;
}

CostModel resolve_costs(const Options& options, const DepthMap& depth, const UnitBytes& bytes,
                        std::optional<int> asked_chunks) {
  return options.subcommand == "sim" ? resolve_sim_costs(options, depth, bytes, asked_chunks)
                                     : resolve_plan_costs(options, depth, bytes, asked_chunks);
}

bool gives_costs(const Options& options) {
  return options.cluster || options.profile || gives_link(options) || !options.action_us.empty() ||
         options.costs.has_value();
}

std::string costs_text(const Options& options, const CostModel& costs, std::string_view microsecond) {
  std::string text;
  if (options.cluster || options.profile) {
    text = cluster_text(options);
    if (options.cluster) return text;
  } else if (options.costs == "model") {
    text = fmt::format("times of each chunk by the layers of {} at {:g} teraflops", one_line(*options.model),
                       options.teraflops.value_or(400));
  } else {
    const ActionTimes times = resolve_times(options);
    text = fmt::format("F, I, W, B = {:g}, {:g}, {:g}, {:g} {} per chunk{}", to_us(times.forward),
                       to_us(times.backward_input), to_us(times.backward_weight), to_us(times.backward), microsecond,
                       options.costs == "depth" ? " on average, in proportion to its sublayers" : "");
  }
  const Link& link = costs.link(RankId(0), RankId(0));
  if (link.latency.count() == 0 && link.value_unit.count() == 0) return text + "; messages are free";
  return text + fmt::format("; a message takes {:g} {} and {:g} {} per tensor", to_us(link.latency), microsecond,
                            to_us(link.value_unit), microsecond);
}

std::string percent(double fraction) { return fmt::format("{:.2f} %", fraction * 100); }

std::string milliseconds(SimTime time) { return fmt::format("{:.3f}", to_us(time) / 1000); }

}  // namespace plumb::cli
