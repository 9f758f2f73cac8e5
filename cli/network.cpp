// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"

#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb::cli {
namespace {

constexpr std::array<std::pair<std::string_view, CommStreams>, 4> stream_names{{
    {"unordered", CommStreams::unordered},
    {"single", CommStreams::single},
    {"per-direction", CommStreams::per_direction},
    {"batched", CommStreams::batched},
}};

CommStreams parse_streams(std::string_view text) {
  for (const auto& [name, streams] : stream_names) {
    if (name == text) return streams;
  }
  throw InputError(
      fmt::format("--streams '{}' is unknown: legal are unordered, single, per-direction and batched", text));
}

std::string_view name_of(CommStreams wanted) {
  for (const auto& [name, streams] : stream_names) {
    if (streams == wanted) return name;
  }
  return {};
}

void require_fair(bool given, std::string_view flag) {
  if (given) throw InputError(fmt::format("{} goes with --sharing fair or --streams only", flag));
}

void require_plain(bool given, std::string_view flag) {
  if (given) {
    throw InputError(
        fmt::format("{} takes one message at a time through a card: it goes with --sharing exclusive only", flag));
  }
}

}  // namespace

std::optional<NetworkModel> resolve_network(const Options& options, const Link& link, const UnitBytes& bytes) {
  const std::string sharing = options.sharing.value_or(options.streams ? "fair" : "exclusive");
  if (sharing != "fair" && sharing != "exclusive") {
    throw InputError(fmt::format("--sharing '{}' is unknown: legal are exclusive and fair", sharing));
  }
  if (sharing == "exclusive") {
    require_fair(options.streams.has_value(), "--streams");
    require_fair(options.eager_bytes.has_value(), "--eager-bytes");
    require_fair(options.launch_us.has_value(), "--launch-us");
    require_fair(options.comm_share.has_value(), "--comm-share");
    return std::nullopt;
  }
  require_plain(options.single_stream, "--single-stream");
  require_plain(options.compare_cache, "--compare-cache");
  require_plain(options.compare.has_value(), "--compare");
  require_plain(!options.against.empty(), "--against");
  const double rate = link.value_unit == SimTime(0)
                          ? std::numeric_limits<double>::infinity()
                          : static_cast<double>(bytes.value) * 1e12 / static_cast<double>(link.value_unit.count());
  NetworkModel network = uniform_network(options.pp, rate, link.latency);
  network.streams = parse_streams(options.streams.value_or("unordered"));
  network.protocol.eager_limit_bytes = options.eager_bytes.value_or(0);
  network.protocol.launch = from_us(options.launch_us.value_or(0), "--launch-us");
  network.protocol.compute_share_while_active = options.comm_share.value_or(0);
  require_sound(network, options.pp);
  return network;
}

std::string network_text(const NetworkModel& network) {
  return fmt::format(
      "network: messages share the cards fairly; streams {}; eager up to {} bytes; launch {:g} us; "
      "{:g} % of compute taken by messages under way",
      name_of(network.streams), network.protocol.eager_limit_bytes, to_us(network.protocol.launch),
      network.protocol.compute_share_while_active * 100);
}

std::string network_json(const NetworkModel& network) {
  return fmt::format(R"({{"sharing":"fair","streams":"{}","eager_bytes":{},"launch_us":{:g},"comm_share":{:g}}})",
                     name_of(network.streams), network.protocol.eager_limit_bytes, to_us(network.protocol.launch),
                     network.protocol.compute_share_while_active);
}

}  // namespace plumb::cli
