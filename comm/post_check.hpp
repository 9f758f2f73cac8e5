// SPDX-License-Identifier: Apache-2.0
// post_check.hpp: what every transport refuses before it starts a message, and the check that one thread issues.
// Private to comm.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "plumb/comm/transport.hpp"

namespace plumb::comm {

/// Throws std::invalid_argument as Transport::post_send documents; returns the sum of the segments.
std::size_t check_post(PeerId rank, std::int32_t size, PeerId peer, std::span<const ConstSegment> segments);
std::size_t check_post(PeerId rank, std::int32_t size, PeerId peer, std::span<const Segment> segments);

/// Aborts the process when two threads are inside the same rank's transport at once: no order between their messages
/// could be promised. Relaxed on purpose: it must not order the caller's memory and so hide a race from a sanitizer.
class IssuingGuard {
 public:
  IssuingGuard(std::atomic<bool>& inside, PeerId rank) noexcept : inside_(inside) {
    if (inside_.exchange(true, std::memory_order_relaxed)) die(rank);
  }
  ~IssuingGuard() { inside_.store(false, std::memory_order_relaxed); }
  IssuingGuard(const IssuingGuard&) = delete;
  IssuingGuard& operator=(const IssuingGuard&) = delete;

 private:
  [[noreturn]] static void die(PeerId rank) noexcept;

  std::atomic<bool>& inside_;
};

}  // namespace plumb::comm
