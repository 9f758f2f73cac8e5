// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "parallel.hpp"
#include "support/catch.hpp"

using namespace plumb;

TEST_CASE("every index is worked on once, by workers that exist", "[cache]") {
  for (const std::size_t num_threads : {std::size_t{1}, std::size_t{4}}) {
    std::vector<std::atomic<int>> calls(100);
    std::atomic<bool> known{true};
    for_each_in_parallel(calls.size(), num_threads, [&](std::size_t index, std::size_t worker) {
      ++calls[index];
      if (worker >= num_threads) known = false;
    });
    CHECK(known);
    for (const std::atomic<int>& count : calls)
      CHECK(count == 1);
  }
}

TEST_CASE("what a worker throws reaches the caller, and the rest is left undone", "[cache]") {
  std::atomic<int> after{0};
  const auto work = [&](std::size_t index, std::size_t) {
    if (index == 3) throw std::runtime_error("index 3");
    if (index > 3) ++after;
  };
  CHECK_THROWS_WITH(for_each_in_parallel(100'000, 1, work), "index 3");
  CHECK(after == 0);
  CHECK_THROWS_WITH(for_each_in_parallel(100'000, 3, work), "index 3");
}

TEST_CASE("small programs take one thread, large ones no more than there are ranks or than asked for", "[cache]") {
  CHECK(threads_worth_it(1000, 64, 8) == 1);
  CHECK(threads_worth_it(10'000'000, 64, 8) == 8);
  CHECK(threads_worth_it(10'000'000, 2, 8) == 2);
}
