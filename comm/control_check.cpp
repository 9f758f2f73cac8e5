// SPDX-License-Identifier: Apache-2.0
#include "control_check.hpp"

#include <stdexcept>

#include <fmt/format.h>

namespace plumb::comm {

void check_exchange(PeerId rank, const std::string& mine) {
  if (mine.size() > ControlPlane::max_text_bytes) {
    throw std::invalid_argument(fmt::format("rank {}: {} bytes to exchange; at most {}", rank.value, mine.size(),
                                            ControlPlane::max_text_bytes));
  }
}

TransportFault exchange_timeout(PeerId rank, std::span<const PeerId> missing, std::chrono::nanoseconds limit) {
  TransportFault fault;
  fault.kind = TransportErrorKind::timeout;
  fault.rank = rank;
  if (!missing.empty()) fault.peer = missing.front();
  std::string names;
  for (const PeerId peer : missing)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", peer.value);
  fault.text =
      fmt::format("waited {} s for the start-up data of rank {}", std::chrono::duration<double>(limit).count(), names);
  return fault;
}

TransportFault exchange_deserted(PeerId rank, PeerId gone) {
  TransportFault fault;
  fault.kind = TransportErrorKind::peer;
  fault.rank = rank;
  fault.peer = gone;
  fault.text = fmt::format("rank {} has left without exchanging its start-up data", gone.value);
  return fault;
}

}  // namespace plumb::comm
