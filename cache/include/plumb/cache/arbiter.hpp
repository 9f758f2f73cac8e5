// SPDX-License-Identifier: Apache-2.0
//
// arbiter.hpp: which waiting message may use the network now, when every rank has one full-duplex NIC.
//
// A message holds the sender's egress and the receiver's ingress from start to end and is not pre-empted. Whenever both
// ends are free it starts: a ready message is never held back by one that waits for its receiver (work-conserving).
// Among candidates urgent goes before bulk, then earlier readiness, then smaller order. It keeps no clock and moves no
// bytes; the planner and the simulator drive it. Not thread-safe.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "plumb/cache/policy.hpp"
#include "plumb/schedule/ids.hpp"

namespace plumb {

class NicArbiter {
 public:
  struct Request {
    RankId from;
    RankId to;
    MessageLane lane = MessageLane::urgent;
    std::int64_t ready_at = 0;
    std::int64_t order = 0;  // the caller's message number, unique
  };

  explicit NicArbiter(int num_ranks);

  // The message may start from now on.
  void submit(const Request& request);
  // The message that held these ends has left the wire.
  void release(RankId from, RankId to);
  // Takes, best first, every request that can start now and marks its ends busy. Call after all events of one instant.
  void start_ready(std::vector<Request>& started);

 private:
  struct Later {
    bool operator()(const Request& a, const Request& b) const;
  };
  using Queue = std::priority_queue<Request, std::vector<Request>, Later>;

  struct Pair {
    RankId from;
    RankId to;
    Queue waiting;
  };

  std::size_t pair_index(RankId from, RankId to);
  void mark(std::size_t pair);

  std::vector<bool> egress_busy_;
  std::vector<bool> ingress_busy_;
  std::vector<Pair> pairs_;                            // only pairs that ever had a message
  std::vector<std::vector<std::int32_t>> pairs_from_;  // [rank] -> indices into pairs_
  std::vector<std::vector<std::int32_t>> pairs_to_;
  std::vector<std::int32_t> touched_;  // pairs whose state changed since the last start_ready
  std::vector<bool> is_touched_;
};

}  // namespace plumb
