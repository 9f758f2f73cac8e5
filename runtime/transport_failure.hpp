// SPDX-License-Identifier: Apache-2.0
//
// transport_failure.hpp (private): a transport's failure in the words of a run.
#pragma once

#include <string>

#include "plumb/comm/transport_error.hpp"
#include "plumb/runtime/run_error.hpp"

namespace plumb {

// `action`: what the rank was doing, empty before a step.
PeerError peer_error(RankId rank, std::string action, const TransportFault& fault);

}  // namespace plumb
