// SPDX-License-Identifier: Apache-2.0
// control_check.hpp: the checks and the wording that all control planes share. Private to comm.
#pragma once

#include <chrono>
#include <span>
#include <string>

#include "plumb/comm/control.hpp"

namespace plumb::comm {

/// Longer waits than this are not distinguished; keeps deadline arithmetic away from overflow.
inline constexpr std::chrono::nanoseconds longest_wait = std::chrono::hours(24 * 365);

/// Throws std::invalid_argument when the text is too long.
void check_exchange(PeerId rank, const std::string& mine);

/// The fault of a rank whose exchange passed its limit while `missing` had not come.
TransportFault exchange_timeout(PeerId rank, std::span<const PeerId> missing, std::chrono::nanoseconds limit);

/// The fault of a rank whose exchange can never finish because `gone` has left.
TransportFault exchange_deserted(PeerId rank, PeerId gone);

}  // namespace plumb::comm
