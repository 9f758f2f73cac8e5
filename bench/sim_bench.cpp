// SPDX-License-Identifier: Apache-2.0
#include "sim_bench.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "command.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/named.hpp"
#include "plumb/simulator/longest_path.hpp"
#include "plumb/simulator/network.hpp"
#include "plumb/simulator/simulate.hpp"

namespace plumb::bench {
namespace {

constexpr int pp = 64;
constexpr int vp = 8;
constexpr int ranks_per_node = 8;
constexpr int sublayers = 1024;
constexpr int block = 64;

constexpr const char* sim_command = "plumb bench sim";
constexpr const char* sim_usage =
    "usage: plumb bench sim [--policy NAME] [--microbatches M] [--json]\n\n"
    "  Simulates P=64 V=8 M=1024, 1024 sublayers in blocks of 64, u = .05: cards one message at a time, cards shared\n"
    "  fairly without and with streams, eight ranks of a node through one card, and without limits as a longest path,\n"
    "  built and evaluated again.\n"
    "  --policy NAME       standard, naive, relay, cached or direct [standard, cached and direct]\n"
    "  --microbatches M    instead of 1024\n"
    "  --json              one JSON object on standard output\n";

struct Row {
  std::string policy;
  std::string way;
  std::int64_t messages = 0;
  std::int64_t events = 0;
  double seconds = 0;
  SimTime step{0};

  double events_per_s() const { return seconds > 0 ? static_cast<double>(events) / seconds : 0; }
};

double clock_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Prints or keeps rows.
class Report {
 public:
  explicit Report(bool json) : json_(json) {
    if (!json_) {
      fmt::print("{:>9} {:>22} {:>10} {:>11} {:>9} {:>10} {:>12}\n", "policy", "way", "messages", "events", "seconds",
                 "M events/s", "step ms");
    }
  }
  void add(const Row& row) {
    if (json_) {
      rows_.push_back(fmt::format(
          R"({{"policy":"{}","way":"{}","messages":{},"events":{},"time_s":{:.4f},"events_per_s":{:.0f},"step_us":{:.3f}}})",
          row.policy, row.way, row.messages, row.events, row.seconds, row.events_per_s(), to_us(row.step)));
      return;
    }
    fmt::print("{:>9} {:>22} {:>10} {:>11} {:>9.3f} {:>10.2f} {:>12.3f}\n", row.policy, row.way, row.messages,
               row.events, row.seconds, row.events_per_s() / 1e6, to_us(row.step) / 1000);
    std::fflush(stdout);
  }
  void end() const {
    if (json_) fmt::print("{{\"results\":[{}]}}\n", fmt::join(rows_, ","));
  }

 private:
  bool json_;
  std::vector<std::string> rows_;
};

// Within a node every rank has six times the rate of the card through which all of them leave it.
NetworkModel shared_by_nodes(double bytes_per_s) {
  NetworkModel network = uniform_network(pp, bytes_per_s, SimTime(0));
  NetworkTier inner = uniform_network(pp, 6 * bytes_per_s, SimTime(0)).tiers.front();
  NetworkTier& outer = network.tiers.front();
  for (std::size_t r = 0; r < static_cast<std::size_t>(pp); ++r) {
    const std::size_t first = r / ranks_per_node * ranks_per_node;
    inner.group[r] = static_cast<std::int32_t>(r / ranks_per_node);
    outer.egress[r] = outer.egress[first];
    outer.ingress[r] = outer.ingress[first];
    for (std::vector<ResourceId>* ends : {&inner.egress, &inner.ingress}) {
      (*ends)[r] = ResourceId(network.resources.size());
      network.resources.push_back({fmt::format("rank {} within its node", r), 6 * bytes_per_s});
    }
  }
  network.tiers.insert(network.tiers.begin(), std::move(inner));
  return network;
}

void measure(const std::string& name, int microbatches, Report& report) {
  const bool standard = name == "standard";
  const Policy policy = standard ? Policy::standard : parse_policy(name);
  const ScheduleKind kind = parse_schedule_kind("interleaved");
  const Layout layout(pp, vp, microbatches, placement_of(kind));
  const DepthMap depth(sublayers, block, DepthMap::even_cuts(sublayers, sublayers, layout.num_chunks()),
                       standard ? Residual::standard : Residual::attnres_block);
  const Program program = lower(make_schedule({.kind = kind}, layout), depth, policy);
  const SimTime ms = from_us(1000, "action");
  const SimTime unit = from_us(50, "unit");
  const UnitBytes bytes = unit_bytes(4096, 7168, 2, GradientWire::storage);
  const CostModel costs(action_times(ms, ms, ms), link_from_unit_time(SimTime(0), unit, bytes), bytes);
  const double rate = static_cast<double>(bytes.value) * 1e12 / static_cast<double>(unit.count());
  Row row{.policy = name, .way = "exclusive", .messages = static_cast<std::int64_t>(program.messages.size())};
  std::int64_t num_actions = 0;
  for (const RankProgram& rank : program.ranks)
    num_actions += static_cast<std::int64_t>(rank.compute.size());
  const auto timed = [&](const std::string& way, auto&& work) {
    row.way = way;
    const double begin = clock_seconds();
    work();
    row.seconds = clock_seconds() - begin;
    report.add(row);
  };
  timed("exclusive", [&] {
    row.events = num_actions + row.messages;
    row.step = simulate(program, costs).step;
  });
  const auto fair = [&](const std::string& way, NetworkModel network, CommStreams streams) {
    timed(way, [&] {
      network.streams = streams;
      NetworkStats stats;
      row.step = simulate_network(program, costs, network, &stats).step;
      row.events = stats.num_events;
    });
  };
  const NetworkModel cards = uniform_network(pp, rate, SimTime(0));
  fair("fair", cards, CommStreams::unordered);
  fair("fair, single", cards, CommStreams::single);
  fair("fair, per-direction", cards, CommStreams::per_direction);
  fair("fair, batched", cards, CommStreams::batched);
  fair("card per node", shared_by_nodes(rate), CommStreams::unordered);
  fair("card per node, single", shared_by_nodes(rate), CommStreams::single);
  std::optional<LongestPath> path;
  timed("path, built", [&] {
    path.emplace(program, bytes, uniform_network(pp, std::numeric_limits<double>::infinity(), unit));
    row.events = static_cast<std::int64_t>(path->num_nodes());
    row.step = SimTime(0);
  });
  path->step(costs);
  timed("path, again", [&] { row.step = path->step(costs); });
}

}  // namespace

int run_sim_bench(const std::vector<std::string>& arguments) try {
  std::vector<std::string> policies{"standard", "cached", "direct"};
  int microbatches = 1024;
  bool json = false;
  const auto take = [&](Flag& flag) {
    if (flag.is("--json")) {
      json = true;
    } else if (flag.is("--policy")) {
      policies = {flag.value()};
      if (policies[0] != "standard") parse_policy(policies[0]);
    } else if (flag.is("--microbatches")) {
      microbatches = static_cast<int>(flag.number(99'999));
    } else {
      return false;
    }
    return true;
  };
  if (const auto ending = read_flags(arguments, sim_command, sim_usage, take)) return *ending;
  Report report(json);
  for (const std::string& policy : policies)
    measure(policy, microbatches, report);
  report.end();
  return 0;
} catch (const InputError& error) {
  return refuse(sim_command, error.what());
}

}  // namespace plumb::bench
