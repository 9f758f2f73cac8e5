// SPDX-License-Identifier: Apache-2.0
// peer.hpp: the names of the two ends of a channel.
//
// A PeerId is a rank seen from the communication layer, 0 .. size-1. A Lane separates urgent messages (what the next
// computation waits for) from bulk ones (what only passes through), so that the first never queue behind the second.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace plumb {

struct PeerId {
  std::int32_t value = 0;
  friend auto operator<=>(const PeerId&, const PeerId&) = default;
};

enum class Lane : std::uint8_t { urgent, bulk };

inline constexpr std::size_t num_lanes = 2;

/// "urgent" or "bulk".
const char* to_text(Lane lane) noexcept;

}  // namespace plumb
