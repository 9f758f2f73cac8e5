// SPDX-License-Identifier: Apache-2.0
// shaped_transport.hpp: a Transport in front of another whose messages take as long as on emulated links.
//
// The bytes cross the inner transport when both ends have posted; a send is handed out when it would have left the
// wire and a receive when it would have arrived (EmulatedLinks), whichever is later. An idle wait sleeps until the
// next such moment. Everything else, order, sizes, failures, is the inner transport's. It can also be told that the
// rank computes: then it hands out only what had arrived before, as a rank without a communication thread would. On
// single-stream links it must be told beforehand in which order the rank's messages run.
// Ownership: inner and links belong to the caller and outlive it. Threads: as Transport; computing() from one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "plumb/comm/emulated_links.hpp"
#include "plumb/comm/transport.hpp"

namespace plumb {

/// One message as the rank sees it.
struct StreamPlace {
  PeerId peer;
  Lane lane = Lane::urgent;
  bool is_send = false;
};

class ShapedTransport final : public Transport {
 public:
  /// std::invalid_argument when the links are for another number of ranks.
  ShapedTransport(Transport& inner, EmulatedLinks& links);

  PeerId rank() const noexcept override { return inner_.rank(); }
  std::int32_t size() const noexcept override { return inner_.size(); }
  void reserve(std::size_t num_messages, std::size_t num_segments) override;
  Ticket post_send(PeerId to, Lane lane, std::span<const ConstSegment> segments) override;
  Ticket post_receive(PeerId from, Lane lane, std::span<const Segment> segments) override;
  std::size_t progress(std::span<Ticket> completed) override;
  void wait(std::chrono::nanoseconds limit) override;
  void notify() noexcept override;
  const Counters& counters() const noexcept override { return counters_; }
  void fail(std::string_view reason) noexcept override;

  /// Of the ticket that progress() handed out last.
  const WireTimes& last_times() const noexcept { return last_times_; }

  /// For single-stream links: the rank's next messages, in the order in which they may run, both ways together. The
  /// n-th post of a peer, lane and way is the n-th such place; a post beyond all that was announced throws
  /// std::logic_error. Orders of two ranks that disagree run into their callers' limits, as on a device stream. Not
  /// while others wait.
  void announce(std::span<const StreamPlace> order);

  /// While the rank computes, nothing is handed out that was not over when it began.
  void computing(bool is_computing);

 private:
  struct Message {
    PeerId peer;
    Lane lane = Lane::urgent;
    bool is_send = false;
    bool moved = false;  ///< the inner transport is done with it
    bool due = false;    ///< and the emulated links are
    std::uint64_t moved_bytes = 0;
    WireTimes times;
  };

  /// The turns of the announced messages of one peer, lane and way.
  struct Turns {
    std::vector<std::uint64_t> all;
    std::size_t num_posted = 0;
  };

  Turns& turns_of(PeerId peer, Lane lane, bool is_send);
  std::uint64_t next_turn(PeerId peer, Lane lane, bool is_send);
  std::uint32_t open(Ticket inner, PeerId peer, Lane lane, bool is_send);
  void collect();
  void collect_inner();
  void finish_if_over(std::uint32_t ticket);
  bool has_ready() const noexcept { return next_ready_ < ready_.size(); }
  std::int64_t until() const noexcept { return hand_out_until_.load(std::memory_order_acquire); }

  Transport& inner_;
  comm::LinkBoard& board_;
  std::vector<Message> messages_;              ///< [ticket]
  std::vector<std::uint32_t> free_;            ///< tickets
  std::vector<std::uint32_t> outer_of_inner_;  ///< [inner ticket]
  std::vector<std::uint32_t> ready_;           ///< over, in order; handed out up to next_ready_
  std::size_t next_ready_ = 0;
  std::vector<Turns> turns_;  ///< [peer][lane][way], single-stream only
  std::uint64_t num_announced_ = 0;
  std::size_t num_late_ = 0;                  ///< due, but the inner transport has not moved them yet
  std::atomic<std::int64_t> hand_out_until_;  ///< nanoseconds of the steady clock
  std::thread::id sleeper_;                   ///< whose timers have been made sharp
  WireTimes last_times_;
  Counters counters_;
};

/// Lets timed sleeps of the calling thread end within microseconds instead of the usual 50.
void sharpen_sleeps() noexcept;

}  // namespace plumb
