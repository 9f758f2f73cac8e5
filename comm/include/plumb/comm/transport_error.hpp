// SPDX-License-Identifier: Apache-2.0
// transport_error.hpp: how communication fails.
//
// Every failure that a run can meet between ranks is one TransportError with plain fields: what kind, where it was
// noticed, at which peer and lane it points, and the sizes when they are the matter. what() is one line for people.
// It is NOT bad use of the interface (an empty message, a send to oneself): that throws std::invalid_argument.
// After a TransportError the data of a step are undefined and every rank of the job learns of the failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "plumb/comm/peer.hpp"

namespace plumb {

enum class TransportErrorKind : std::uint8_t {
  peer,      ///< another rank failed first, or left while a message with it was due
  timeout,   ///< a limit passed; the text says what was waited for and who was missing
  protocol,  ///< both ends were there but disagreed on the size of a message
  net,       ///< the substrate (MPI, a socket) reported an error of its own
};

struct TransportFault {
  TransportErrorKind kind = TransportErrorKind::net;
  PeerId rank;                 ///< the rank that noticed, in other words this one
  std::optional<PeerId> peer;  ///< the other end; for kind peer: the rank that failed first
  std::optional<Lane> lane;
  std::size_t expected_bytes = 0;  ///< protocol only: the segment as posted on `rank`
  std::size_t got_bytes = 0;       ///< protocol only: the segment as it came; at least this many when it did not fit
  std::string text;                ///< the cause in words, one line
};

class TransportError : public std::runtime_error {
 public:
  explicit TransportError(TransportFault fault);
  const TransportFault& fault() const noexcept { return fault_; }

 private:
  TransportFault fault_;
};

/// "peer", "timeout", "protocol" or "net".
const char* to_text(TransportErrorKind kind) noexcept;

/// One line for people: "rank 2: protocol error with rank 1 on the bulk lane: ...".
std::string to_text(const TransportFault& fault);

}  // namespace plumb
