// SPDX-License-Identifier: Apache-2.0
// inproc_state.hpp: what the ranks of one InprocHub share.
//
// Invariants
// 1. A channel's list holds posts of one side only, in posting order: the side that is ahead.
// 2. A post is in one place: its channel's list, the hands of the copying thread, or its owner's `finished` stack.
// 3. One channel never has two copies under way: whoever copies is the only thread that can post on its side, and the
//    other side's posts find an empty list and queue. So copies and completions of a channel keep posting order.
// Private to comm.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plumb/comm/control.hpp"
#include "plumb/comm/transport.hpp"
#include "wake_event.hpp"

namespace plumb::comm {

struct InprocSegment {
  Segment segment;  ///< a send's bytes are only read
  InprocSegment* next = nullptr;
  std::uint32_t number = 0;
};

struct InprocPost {
  std::uint32_t number = 0;  ///< the ticket
  PeerId peer;
  Lane lane = Lane::urgent;
  bool is_send = false;
  InprocSegment* segments = nullptr;
  std::size_t moved_bytes = 0;  ///< set by the copying thread
  InprocPost* next = nullptr;   ///< in whatever list it is
};

struct InprocChannel {
  std::mutex mutex;
  InprocPost* head = nullptr;
  InprocPost* tail = nullptr;
};

struct alignas(64) InprocRank {
  std::atomic<InprocPost*> finished{nullptr};  ///< last finished first
  WakeEvent event;
  std::atomic<bool> left{false};
  std::atomic<bool> has_transport{false};
  std::atomic<bool> has_control{false};
};

/// One exchange at a time; the last rank to come publishes the result for all.
struct InprocExchange {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t round = 0;
  std::size_t num_arrived = 0;
  std::vector<std::optional<std::string>> arrived;
  std::shared_ptr<const std::vector<std::string>> published;
};

struct InprocState {
  explicit InprocState(std::int32_t num_ranks);

  InprocChannel& channel(PeerId from, PeerId to, Lane lane);
  InprocRank& at(PeerId rank) { return ranks[static_cast<std::size_t>(rank.value)]; }

  /// Records the job's failure unless it has one and wakes everybody.
  void fail(TransportFault fault);
  bool has_failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// The recorded failure as `rank` has to report it. REQUIRES: has_failed().
  TransportFault failure_seen_by(PeerId rank) const;

  const std::int32_t size;
  std::vector<InprocChannel> channels;
  std::vector<InprocRank> ranks;
  InprocExchange exchange;

 private:
  std::atomic<bool> failed_{false};
  std::mutex failure_mutex_;
  TransportFault first_failure_;  ///< never changes once `failed_` is set
};

std::unique_ptr<Transport> make_inproc_transport(std::shared_ptr<InprocState> state, PeerId rank);
std::unique_ptr<ControlPlane> make_inproc_control(std::shared_ptr<InprocState> state, PeerId rank);

}  // namespace plumb::comm
