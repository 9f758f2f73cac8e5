// SPDX-License-Identifier: Apache-2.0
//
// network.hpp (private): the network that `plumb sim --sharing fair` runs on, out of the flags of one link or a
// cluster.
#pragma once

#include <optional>
#include <string>

#include "options.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/network_model.hpp"

namespace plumb::cli {

// Nothing with --sharing exclusive, the default. Else the interfaces of the cluster, or a full-duplex card per rank
// with the rate and latency of `link`; and the streams, eager limit, launch time and share of compute of the flags,
// before those of the cluster. --streams means fair. Throws InputError for flags that would have no effect.
std::optional<NetworkModel> resolve_network(const Options& options, const Link& link, const UnitBytes& bytes);

// "fair shares of cards, streams per-direction"
std::string network_text(const Options& options, const NetworkModel& network);
// {"sharing":"fair","streams":"per-direction",...}
std::string network_json(const NetworkModel& network);

}  // namespace plumb::cli
