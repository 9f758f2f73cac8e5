// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"

#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "cluster.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb::cli {
namespace {

constexpr std::array<std::pair<std::string_view, CommStreams>, 4> stream_names{{
    {"unordered", CommStreams::unordered},
    {"single", CommStreams::single},
    {"per-direction", CommStreams::per_direction},
    {"batched", CommStreams::batched},
}};

constexpr std::int64_t max_eager_bytes = std::int64_t{1} << 50;

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

NetworkModel network_of_link(int num_ranks, const Link& link, const UnitBytes& bytes) {
  const double rate = link.value_unit == SimTime(0)
                          ? std::numeric_limits<double>::infinity()
                          : static_cast<double>(bytes.value) * 1e12 / static_cast<double>(link.value_unit.count());
  return uniform_network(num_ranks, rate, link.latency);
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
  const bool scarce_cores =
      options.cluster && cores_are_scarce(resolve_cluster_network(options, CommStreams::unordered).shared_cores);
  const std::string sharing = options.sharing.value_or(options.streams || scarce_cores ? "fair" : "exclusive");
  if (sharing != "fair" && sharing != "exclusive") {
    throw InputError(fmt::format("--sharing '{}' is unknown: legal are exclusive and fair", sharing));
  }
  if (sharing == "exclusive") {
    if (scarce_cores) {
      throw InputError("--sharing exclusive: ranks of this cluster share cores (cores_per_node): only fair knows that");
    }
    require_fair(options.streams.has_value(), "--streams");
    require_fair(options.eager_bytes.has_value(), "--eager-bytes");
    require_fair(options.launch_us.has_value(), "--launch-us");
    require_fair(options.comm_share.has_value(), "--comm-share");
    return std::nullopt;
  }
  require_plain(options.single_stream, "--single-stream");
  require_plain(options.compare.has_value(), "--compare");
  const CommStreams streams = parse_streams(options.streams.value_or("unordered"));
  NetworkModel network =
      options.cluster ? resolve_cluster_network(options, streams) : network_of_link(options.pp, link, bytes);
  network.streams = streams;
  MessageProtocol& protocol = network.protocol;
  if (options.eager_bytes.value_or(0) > max_eager_bytes) {
    throw InputError(fmt::format("--eager-bytes {} is more than any message has, legal are 0 to {}",
                                 *options.eager_bytes, max_eager_bytes));
  }
  if (options.eager_bytes) protocol.eager_limit_bytes = *options.eager_bytes * options.tp.value_or(1);
  if (options.launch_us) protocol.launch = from_us(*options.launch_us, "--launch-us");
  if (options.comm_share) protocol.compute_share_while_active = *options.comm_share;
  require_sound(network, options.pp);
  return network;
}

std::string network_text(const Options& options, const NetworkModel& network) {
  const MessageProtocol& protocol = network.protocol;
  std::string text = fmt::format(
      "network: messages share {} fairly; streams {}; eager up to {} bytes{}; launch {:g} us; {:g} % of compute taken "
      "by "
      "messages under way",
      options.cluster ? "interfaces" : "the cards", name_of(network.streams),
      protocol.eager_limit_bytes / options.tp.value_or(1), options.tp ? " of a device" : "", to_us(protocol.launch),
      protocol.compute_share_while_active * 100);
  if (protocol.compute_share_while_waiting > 0)
    text += fmt::format(", {:g} % by waiting ones", protocol.compute_share_while_waiting * 100);
  if (cores_are_scarce(network.shared_cores))
    text += fmt::format("; the ranks of a machine share {} cores", network.shared_cores.cores);
  return text;
}

std::string network_json(const NetworkModel& network) {
  const MessageProtocol& protocol = network.protocol;
  return fmt::format(
      R"({{"sharing":"fair","streams":"{}","eager_bytes":{},"launch_us":{:g},"comm_share":{:g},"waiting_share":{:g},"cores_per_node":{}}})",
      name_of(network.streams), protocol.eager_limit_bytes, to_us(protocol.launch), protocol.compute_share_while_active,
      protocol.compute_share_while_waiting,
      cores_are_scarce(network.shared_cores) ? fmt::to_string(network.shared_cores.cores) : "null");
}

}  // namespace plumb::cli
