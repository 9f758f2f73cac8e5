// SPDX-License-Identifier: Apache-2.0
#include "transport_failure.hpp"

#include <optional>
#include <utility>

#include <fmt/format.h>

namespace plumb {
namespace {

RunErrorKind kind_of(TransportErrorKind kind) {
  switch (kind) {
    case TransportErrorKind::peer:
      return RunErrorKind::peer;
    case TransportErrorKind::timeout:
      return RunErrorKind::timeout;
    case TransportErrorKind::protocol:
      return RunErrorKind::protocol;
    case TransportErrorKind::net:
      break;
  }
  return RunErrorKind::net;
}

}  // namespace

PeerError peer_error(RankId rank, std::string action, const TransportFault& fault) {
  const auto peer = fault.peer ? std::optional(RankId(fault.peer->value)) : std::nullopt;
  const bool peer_failed = fault.kind == TransportErrorKind::peer && peer;
  return {kind_of(fault.kind), rank, std::move(action), peer,
          peer_failed ? fmt::format("rank {} failed: {}", peer->value, fault.text) : fault.text};
}

}  // namespace plumb
