// SPDX-License-Identifier: Apache-2.0
// wire_model.hpp: the emulated network ends of all ranks, as a state machine in one fixed block of memory.
//
// Every rank has one full-duplex network end. A message may start when its send and its receive are posted; it holds
// the sender's egress and the receiver's ingress for its whole duration, is not pre-empted, and starts as soon as both
// are free: a ready message never waits for one that waits for its receiver. Among candidates urgent goes before bulk,
// then the earlier posted send, then the earlier made ready. It arrives a latency after it has left the wire. Where
// bytes cost nothing, messages hold nothing and all travel at once.
// Single-stream, a rank's egress and ingress are one, and its messages start in the order of their turns at both ends:
// who comes before its turn waits, with the ends free if need be.
// Time comes with each call and only advances; what happened since the last call is caught up with in its own order,
// at its own times, so that who looks late does not make the wire late. It moves no bytes, waits for nobody, locks
// nothing. The block may be mapped at different addresses in several processes. Units: nanoseconds. Private to comm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "plumb/comm/emulated_links.hpp"

namespace plumb::comm {

class WireModel {
 public:
  using Time = std::int64_t;
  static constexpr Time never = std::numeric_limits<Time>::max();

  static std::size_t bytes_needed(std::int32_t num_ranks, std::size_t most_messages);

  /// A view of a block of at least bytes_needed(), 64-byte aligned. `fresh`: lays out the block; else it was laid out
  /// by another view.
  WireModel(std::byte* block, bool fresh, std::int32_t num_ranks, std::size_t most_messages, const LinkShape& shape);

  /// One end of a message. `turn`: its number among all that the posting rank sends and receives, from 0, each once;
  /// looked at single-stream only. False when there is no room for another message.
  bool post(Time now, PeerId from, PeerId to, Lane lane, bool is_send, std::uint32_t ticket, std::size_t size_bytes,
            std::uint64_t turn = 0);

  /// Catches up with the time.
  void advance(Time now);

  struct Completion {
    std::uint32_t ticket = 0;
    WireTimes times;
  };
  /// The oldest of `rank`'s messages that left (for the sender) or arrived (for the receiver) at `until` or before.
  std::optional<Completion> take(PeerId rank, Time until);

  /// When take() will next have something for `rank`, as far as is known; never, if nothing of its own is on the way.
  Time next_completion(PeerId rank) const;
  /// When the message on `rank`'s egress leaves it: its sender then has to call advance(), for others may be waiting.
  Time egress_free(PeerId rank) const;

  /// `rank` sleeps until then, or is awake (never wakes by itself: 0).
  void set_wake_time(PeerId rank, Time at);
  /// Ranks that sleep longer than they should since the last call of this function; forgets them.
  std::span<const PeerId> to_wake();
  void clear_to_wake() { to_wake_.clear(); }

 private:
  struct Record {
    std::int32_t next;          // in its channel's list, later in the sender's list of departures
    std::int32_t next_arrival;  // in the receiver's list of arrivals
    std::int32_t from;
    std::int32_t to;
    std::uint32_t send_ticket;
    std::uint32_t receive_ticket;
    std::uint8_t lane;
    std::uint8_t num_ends;
    std::uint8_t num_taken;
    std::uint64_t order;  // in which it became ready
    std::uint64_t send_turn;
    std::uint64_t receive_turn;
    std::int64_t size_bytes;
    Time send_posted;
    Time started;
    Time left;
    Time arrived;
  };
  struct Queue {
    std::int32_t head;
    std::int32_t tail;
  };
  struct Channel {
    Queue one_sided;  // posted by one side only
    Queue ready;      // posted by both, not started
    std::uint8_t sends_ahead;
  };
  struct Rank {
    std::int32_t egress;   // the record that holds it, -1: free
    std::int32_t ingress;  //
    Queue departures;
    Queue arrivals;
    std::uint64_t next_turn;
    Time wake_time;
  };
  struct Header {
    std::int32_t free_records;
    std::uint64_t num_ready;
  };

  Channel& channel(std::int32_t from, std::int32_t to, std::int32_t lane) {
    return channels_[(static_cast<std::size_t>(from) * num_ranks_ + static_cast<std::size_t>(to)) * num_lanes +
                     static_cast<std::size_t>(lane)];
  }
  Record& record(std::int32_t index) const { return records_[static_cast<std::size_t>(index)]; }
  Rank& rank(std::int32_t index) const { return ranks_[static_cast<std::size_t>(index)]; }
  void append(Queue& queue, std::int32_t index);
  std::int32_t pop(Queue& queue);
  void make_ready(Time now, std::int32_t index);
  void start(Time now, std::int32_t index);
  void release_all(Time at);
  void start_ready(Time at);
  void consider(std::int32_t from, std::int32_t to, std::int32_t& best);
  bool may_start(const Record& message) const;
  void mark_changed(std::int32_t from, std::int32_t to);
  bool goes_before(std::int32_t a, std::int32_t b) const;
  Time duration(std::int64_t size_bytes) const;
  void note_due(std::int32_t rank_index, Time due);
  std::optional<Completion> taken(std::int32_t index, bool departure);
  void layout_block();

  std::size_t num_ranks_;
  std::size_t most_messages_;
  LinkShape shape_;
  Header* header_;
  Rank* ranks_;
  Channel* channels_;
  Record* records_;
  // Room for one call; per process.
  std::vector<std::int32_t> changed_egress_;  // freed, or single-stream: has had a turn
  std::vector<std::int32_t> changed_ingress_;
  std::vector<PeerId> to_wake_;
};

}  // namespace plumb::comm
