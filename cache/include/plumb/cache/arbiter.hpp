// SPDX-License-Identifier: Apache-2.0
//
// arbiter.hpp: which waiting message may use the network now.
//
// A message holds the sender's egress and the receiver's ingress from start to end and is not pre-empted; half-duplex,
// a rank's egress and ingress are one and the same. Whenever both ends are free it starts: a ready message is never
// held back by one that waits for its receiver (work-conserving). Among candidates urgent goes before bulk, then
// earlier readiness, then smaller order. It keeps no clock and moves no bytes; the planner and the simulator drive it.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "plumb/cache/policy.hpp"
#include "plumb/schedule/ids.hpp"

namespace plumb {

// What one rank can do at a time: send and receive (one full-duplex network end), or either of them (everything on one
// communication stream).
enum class Duplex : std::uint8_t { full, half };

class NicArbiter {
 public:
  using Link = Id<struct ArbiterLinkTag>;  // an ordered pair of ranks that has messages

  struct Request {
    RankId from;
    RankId to;
    MessageLane lane = MessageLane::urgent;
    std::int64_t ready_at = 0;  // 0..2^62
    std::int64_t order = 0;     // the caller's message number, unique
  };
  struct Started {
    Link link;
    std::int64_t order = 0;
  };

  explicit NicArbiter(int num_ranks, Duplex duplex = Duplex::full);

  // The same link for the same ranks.
  Link link(RankId from, RankId to);

  // The message may start from now on.
  void submit(Link link, MessageLane lane, std::int64_t ready_at, std::int64_t order);
  void submit(const Request& request) {
    submit(link(request.from, request.to), request.lane, request.ready_at, request.order);
  }
  // The message that held these ends has left the wire.
  void release(Link link);
  void release(RankId from, RankId to) { release(link(from, to)); }
  // Takes, best first, every request that can start now and marks its ends busy. Call after all events of one instant.
  // Once it has returned nothing more can start until the next submit or release.
  void start_ready(std::vector<Started>& started);

  // visit(link, lane, ready_at, order) for every message that waits, in no particular order.
  template <class Visit>
  void for_each_waiting(Visit&& visit) const;
  // Moves all that waits to a later time and to greater numbers.
  void postpone(std::int64_t time, std::int64_t order);

 private:
  static constexpr std::int64_t bulk_bit = std::int64_t{1} << 62;

  struct Waiting {
    std::int64_t key;  // lane above ready_at
    std::int64_t order;
    bool operator>(const Waiting& other) const { return key != other.key ? key > other.key : order > other.order; }
  };
  struct Ends {
    RankId from;
    RankId to;
  };
  struct Candidate {
    Waiting best;
    Link link;
    bool operator>(const Candidate& other) const { return best > other.best; }
  };
  // One bit per rank.
  class RankSet {
   public:
    explicit RankSet(std::size_t num_ranks) : words_((num_ranks + 63) / 64, 0) {}
    void insert(RankId rank) { words_[rank.index() / 64] |= bit(rank); }
    void erase(RankId rank) { words_[rank.index() / 64] &= ~bit(rank); }
    bool contains(RankId rank) const { return (words_[rank.index() / 64] & bit(rank)) != 0; }
    template <class Visit>
    void for_each_also_in(const RankSet& other, Visit&& visit) const;

   private:
    static std::uint64_t bit(RankId rank) { return std::uint64_t{1} << (rank.index() % 64); }
    std::vector<std::uint64_t> words_;
  };

  std::int32_t& cell(RankId from, RankId to) { return link_of_[from.index() * num_ranks_ + to.index()]; }
  RankSet& free_egress() { return free_[0]; }
  RankSet& free_ingress() { return free_[duplex_ == Duplex::full ? 1 : 0]; }
  void touch(RankId from);
  void add_best_of(RankId from);

  std::size_t num_ranks_;
  Duplex duplex_;
  std::vector<std::int32_t> link_of_;         // [from][to], -1 where no message ever was
  std::vector<Ends> ends_;                    // [link]
  std::vector<Waiting> best_;                 // [link], if one waits
  std::vector<std::vector<Waiting>> others_;  // [link], a heap
  std::vector<RankSet> free_;                 // egress, ingress; half-duplex only the first
  std::vector<RankSet> waiting_to_;           // [from]: receivers of waiting messages
  std::vector<RankSet> waiting_from_;         // [to]: senders of waiting messages
  std::vector<RankId> freed_ingress_;         // since the last start_ready
  std::vector<RankId> touched_;               // egresses that may have something to start
  std::vector<bool> is_touched_;
  std::vector<Candidate> candidates_;  // the best of each touched egress, a heap
};

template <class Visit>
void NicArbiter::for_each_waiting(Visit&& visit) const {
  const auto show = [&](Link link, const Waiting& waiting) {
    const MessageLane lane = (waiting.key & bulk_bit) != 0 ? MessageLane::bulk : MessageLane::urgent;
    visit(link, lane, waiting.key & ~bulk_bit, waiting.order);
  };
  for (std::size_t link = 0; link < ends_.size(); ++link) {
    if (!waiting_to_[ends_[link].from.index()].contains(ends_[link].to)) continue;
    show(Link(link), best_[link]);
    for (const Waiting& waiting : others_[link])
      show(Link(link), waiting);
  }
}

}  // namespace plumb
