// SPDX-License-Identifier: Apache-2.0
#include "costs.hpp"

#include <charconv>
#include <limits>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "plumb/simulator/layer_costs.hpp"

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

std::vector<ActionTimes> times_of_chunks(const Options& options, const DepthMap& depth) {
  if (!options.costs) {
    if (options.teraflops) throw InputError("--teraflops goes with --costs model only");
    return {resolve_times(options)};
  }
  if (*options.costs != "model")
    throw InputError(fmt::format("--costs '{}' is unknown, legal is model", *options.costs));
  if (!options.model) throw InputError("--costs model needs --model, whose layers it counts");
  if (!options.action_us.empty()) throw InputError("--costs model and --action-us exclude each other");
  return chunk_times(
      load_shape(*options.model), depth.cuts(),
      {.tokens = options.tokens, .sequence = options.tokens, .teraflops = options.teraflops.value_or(400)});
}

}  // namespace

ActionTimes resolve_times(const Options& options) {
  const std::string& text = options.action_us;
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

bool gives_link(const Options& options) { return options.hop_us || options.hop_gbps || options.unit_us; }

Link resolve_link(const Options& options, const UnitBytes& bytes) {
  const SimTime latency = from_us(options.hop_us.value_or(200), "--hop-us");
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

CostModel resolve_sim_costs(const Options& options, const DepthMap& depth, const UnitBytes& bytes) {
  return CostModel(times_of_chunks(options, depth), resolve_link(options, bytes), bytes);
}

CostModel resolve_plan_costs(const Options& options, const DepthMap& depth, const UnitBytes& bytes) {
  return CostModel(times_of_chunks(options, depth), gives_link(options) ? resolve_link(options, bytes) : Link{}, bytes);
}

std::string percent(double fraction) { return fmt::format("{:.2f} %", fraction * 100); }

std::string milliseconds(SimTime time) { return fmt::format("{:.3f}", to_us(time) / 1000); }

}  // namespace plumb::cli
