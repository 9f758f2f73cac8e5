// SPDX-License-Identifier: Apache-2.0
// transport.hpp: moves bytes between ranks over ordered channels without tags.
//
// A channel is (peer, lane) and one FIFO per direction: the n-th send meets the n-th receive, so nothing on the wire
// says which message it is. Both ends know the sizes in advance; a message is a list of segments that travel without
// packing, and the two lists must agree segment by segment (a difference is a TransportError on the receiver).
// Assume no buffering: a send may stay unfinished until its receive is posted. It is NOT a message queue, it never
// converts, and it has no collectives (see control.hpp).
// Ownership: the caller owns every byte; a segment's memory stays valid until its ticket came out of progress(), or
// until fail() returned, or until the Transport is gone. Units: bytes. Threads: all calls come from one thread at a
// time (the issuing thread of this rank), only notify() may come from any other. Nothing but wait() and fail() waits.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plumb/comm/peer.hpp"
#include "plumb/comm/transport_error.hpp"

namespace plumb {

struct Segment {
  std::byte* data = nullptr;
  std::size_t size_bytes = 0;
};

struct ConstSegment {
  const std::byte* data = nullptr;
  std::size_t size_bytes = 0;
};

/// One posted message. Values are small and dense (the next is a free one below the most ever in flight), hence fit
/// to index a plain array; a value is free again once progress() has handed it out.
struct Ticket {
  std::uint32_t value = 0;
  friend auto operator<=>(const Ticket&, const Ticket&) = default;
};

/// What really moved, counted when progress() hands out a ticket: copied or reported lengths, never planned ones.
struct ChannelCounters {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
};

struct Counters {
  ChannelCounters total;
  std::vector<std::array<ChannelCounters, num_lanes>> by_peer;  ///< [peer][lane]

  const ChannelCounters& at(PeerId peer, Lane lane) const {
    return by_peer.at(static_cast<std::size_t>(peer.value)).at(static_cast<std::size_t>(lane));
  }
};

class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  /// This rank leaves. With messages still pending it leaves as if by fail().
  virtual ~Transport() = default;

  virtual PeerId rank() const noexcept = 0;
  virtual std::int32_t size() const noexcept = 0;

  /// Makes room for so many messages and segments in flight at once, over all channels and both directions. Below
  /// these numbers no later call allocates; above them the pools grow and keep what they got.
  virtual void reserve(std::size_t num_messages, std::size_t num_segments) = 0;

  /// Starts a message; returns at once. The list itself is copied, the memory it points to is not.
  /// Throws std::invalid_argument on an empty list, an empty or null segment, this rank itself or an unknown peer as
  /// the other end; TransportError when a failure of any rank is known.
  virtual Ticket post_send(PeerId to, Lane lane, std::span<const ConstSegment> segments) = 0;
  virtual Ticket post_receive(PeerId from, Lane lane, std::span<const Segment> segments) = 0;

  /// Moves communication on and hands out up to completed.size() finished tickets (the rest next time); returns how
  /// many. Never waits. A finished receive has all its bytes in place; a finished send's memory may be reused.
  /// Tickets of one channel need not finish in posting order. Throws TransportError.
  virtual std::size_t progress(std::span<Ticket> completed) = 0;

  /// Returns when progress() may have something to hand out, when notify() was called since the last wait() returned,
  /// or after `limit`; a spurious return is legal. An idle wait gives its core away. Throws TransportError.
  virtual void wait(std::chrono::nanoseconds limit) = 0;

  /// Ends the current or else the next wait(). Any thread, cheap, may be repeated.
  virtual void notify() noexcept = 0;

  /// The counts so far; valid as long as the Transport.
  virtual const Counters& counters() const noexcept = 0;

  /// Declares this rank failed, whatever the cause, also after a TransportError: the others' posts, progress() and
  /// wait() throw kind `peer` with this rank and reason (the first failure of a job wins). When it returns (within
  /// seconds) no byte of this rank's segments is touched any more. Later posts, progress() and wait() throw.
  virtual void fail(std::string_view reason) noexcept = 0;
};

}  // namespace plumb
