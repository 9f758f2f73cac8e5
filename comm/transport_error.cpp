// SPDX-License-Identifier: Apache-2.0
#include "plumb/comm/transport_error.hpp"

#include <utility>

#include <fmt/format.h>

namespace plumb {

const char* to_text(Lane lane) noexcept { return lane == Lane::urgent ? "urgent" : "bulk"; }

const char* to_text(TransportErrorKind kind) noexcept {
  switch (kind) {
    case TransportErrorKind::peer:
      return "peer";
    case TransportErrorKind::timeout:
      return "timeout";
    case TransportErrorKind::protocol:
      return "protocol";
    case TransportErrorKind::net:
      return "net";
  }
  return "unknown";
}

std::string to_text(const TransportFault& fault) {
  std::string line = fmt::format("rank {}: {} error", fault.rank.value, to_text(fault.kind));
  if (fault.peer) line += fmt::format(" with rank {}", fault.peer->value);
  if (fault.lane) line += fmt::format(" on the {} lane", to_text(*fault.lane));
  return line + ": " + fault.text;
}

TransportError::TransportError(TransportFault fault) : std::runtime_error(to_text(fault)), fault_(std::move(fault)) {}

}  // namespace plumb
