// SPDX-License-Identifier: Apache-2.0
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
