// SPDX-License-Identifier: Apache-2.0
#include <tuple>

#include "cache/support/layouts.hpp"
#include "plumb/cache/arbiter.hpp"
#include "support/catch.hpp"

using namespace plumb;

namespace {

NicArbiter::Request request(int from, int to, MessageLane lane, std::int64_t ready_at, std::int64_t order) {
  return {RankId(from), RankId(to), lane, ready_at, order};
}

std::vector<std::int64_t> start(NicArbiter& arbiter) {
  std::vector<NicArbiter::Started> started;
  arbiter.start_ready(started);
  std::vector<std::int64_t> orders;
  for (const auto& one : started) {
    orders.push_back(one.order);
  }
  return orders;
}

constexpr auto urgent = MessageLane::urgent;
constexpr auto bulk = MessageLane::bulk;
using Orders = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("urgent goes before bulk, then the earlier ready, then the smaller order", "[cache]") {
  NicArbiter arbiter(2);
  arbiter.submit(request(0, 1, bulk, 0, 1));
  arbiter.submit(request(0, 1, urgent, 7, 4));
  arbiter.submit(request(0, 1, urgent, 5, 3));
  arbiter.submit(request(0, 1, urgent, 5, 2));
  Orders seen;
  for (int i = 0; i < 4; ++i) {
    for (const std::int64_t order : start(arbiter)) {
      seen.push_back(order);
      arbiter.release(RankId(0), RankId(1));
    }
  }
  REQUIRE(seen == Orders{2, 3, 4, 1});
}

TEST_CASE("a message holds both ends, and the two directions of a NIC are independent", "[cache]") {
  NicArbiter arbiter(3);
  arbiter.submit(request(0, 1, urgent, 0, 1));
  arbiter.submit(request(1, 0, urgent, 0, 2));  // full duplex
  arbiter.submit(request(2, 1, urgent, 0, 3));  // ingress of 1 is taken
  arbiter.submit(request(0, 2, urgent, 0, 4));  // egress of 0 is taken
  REQUIRE(start(arbiter) == Orders{1, 2});
  arbiter.release(RankId(0), RankId(1));
  REQUIRE(start(arbiter) == Orders{3, 4});
}

TEST_CASE("a ready message is not held back by a better one that waits for its receiver", "[cache]") {
  NicArbiter arbiter(3);
  arbiter.submit(request(2, 1, urgent, 0, 1));
  REQUIRE(start(arbiter) == Orders{1});
  arbiter.submit(request(0, 1, urgent, 1, 2));  // better, but the ingress of 1 is busy
  arbiter.submit(request(0, 2, bulk, 1, 3));
  REQUIRE(start(arbiter) == Orders{3});
  arbiter.release(RankId(2), RankId(1));
  REQUIRE(start(arbiter).empty());  // the egress of 0 is busy now
  arbiter.release(RankId(0), RankId(2));
  REQUIRE(start(arbiter) == Orders{2});
}

TEST_CASE("half-duplex, a rank sends or receives, one message at a time", "[cache]") {
  NicArbiter arbiter(4, Duplex::half);
  arbiter.submit(request(0, 1, urgent, 0, 1));
  arbiter.submit(request(1, 0, urgent, 0, 2));  // the same two streams
  arbiter.submit(request(2, 0, urgent, 0, 3));  // rank 0 is sending
  arbiter.submit(request(2, 3, bulk, 0, 4));
  REQUIRE(start(arbiter) == Orders{1, 4});
  arbiter.release(RankId(2), RankId(3));
  REQUIRE(start(arbiter).empty());
  arbiter.release(RankId(0), RankId(1));
  REQUIRE(start(arbiter) == Orders{2});
  arbiter.release(RankId(1), RankId(0));
  REQUIRE(start(arbiter) == Orders{3});
}

namespace {

// The rule itself: again and again the best of all that could start.
Orders best_first(std::vector<NicArbiter::Request>& waiting, std::vector<bool>& egress, std::vector<bool>& ingress) {
  Orders started;
  while (true) {
    const NicArbiter::Request* best = nullptr;
    for (const NicArbiter::Request& candidate : waiting) {
      if (egress[candidate.from.index()] || ingress[candidate.to.index()]) continue;
      const auto rank = [](const NicArbiter::Request& r) { return std::tuple(r.lane, r.ready_at, r.order); };
      if (best == nullptr || rank(candidate) < rank(*best)) best = &candidate;
    }
    if (best == nullptr) return started;
    egress[best->from.index()] = ingress[best->to.index()] = true;
    started.push_back(best->order);
    waiting.erase(waiting.begin() + (best - waiting.data()));
  }
}

}  // namespace

TEST_CASE("what starts is what the rule says, whatever was submitted and released before", "[cache]") {
  test::Dice dice(32);
  for (int round = 0; round < 100; ++round) {
    const int ranks = dice.roll(2, 70);
    NicArbiter arbiter(ranks);
    std::vector<NicArbiter::Request> all;
    std::vector<NicArbiter::Request> waiting;
    std::vector<NicArbiter::Request> running;
    std::vector<bool> egress(static_cast<std::size_t>(ranks));
    std::vector<bool> ingress(static_cast<std::size_t>(ranks));
    for (int instant = 0; instant < 60; ++instant) {
      for (int i = dice.roll(0, 8); i > 0; --i) {
        const int from = dice.roll(0, ranks - 1);
        const int to = (from + dice.roll(1, ranks - 1)) % ranks;
        all.push_back(request(from, to, dice.roll(0, 1) == 0 ? urgent : bulk, dice.roll(0, instant),
                              static_cast<std::int64_t>(all.size())));
        arbiter.submit(all.back());
        waiting.push_back(all.back());
      }
      for (std::size_t i = running.size(); i-- > 0;) {
        if (dice.roll(0, 2) > 0) continue;
        arbiter.release(running[i].from, running[i].to);
        egress[running[i].from.index()] = ingress[running[i].to.index()] = false;
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      }
      const Orders started = start(arbiter);
      REQUIRE(started == best_first(waiting, egress, ingress));
      for (const std::int64_t order : started)
        running.push_back(all[static_cast<std::size_t>(order)]);
    }
  }
}
