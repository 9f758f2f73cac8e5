// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <vector>

#include "cache/support/layouts.hpp"
#include "plumb/cache/event_queue.hpp"
#include "support/catch.hpp"

using namespace plumb;
using plumb::test::Dice;

TEST_CASE("events come out in the order of their times, and of one instant in the order in which they went in",
          "[cache]") {
  Dice dice(31);
  for (int round = 0; round < 200; ++round) {
    const int spread = dice.roll(0, 3) == 0 ? 1 << 30 : dice.roll(1, 40);
    EventQueue<int> queue;
    std::map<std::int64_t, std::vector<int>> expected;
    int next = 0;
    const auto push = [&](std::int64_t time) {
      expected[time].push_back(next);
      queue.push(time, next++);
    };
    for (int i = dice.roll(0, 20); i > 0; --i)
      push(dice.roll(0, spread));
    for (std::int64_t now = queue.advance(); now != EventQueue<int>::never; now = queue.advance()) {
      REQUIRE(now == expected.begin()->first);
      std::size_t taken = 0;
      for (int event = 0; queue.pop(event);) {
        REQUIRE(taken < expected.begin()->second.size());
        REQUIRE(event == expected.begin()->second[taken++]);
        if (next < 300 && dice.roll(0, 1) == 0) push(now + dice.roll(0, spread));
        if (next < 300 && dice.roll(0, 3) == 0) push(now);
      }
      REQUIRE(taken == expected.begin()->second.size());
      expected.erase(now);
      if (next < 300 && dice.roll(0, 5) == 0) push(now);  // after the instant seemed over
    }
    REQUIRE(expected.empty());
  }
}
