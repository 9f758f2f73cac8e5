// SPDX-License-Identifier: Apache-2.0
//
// fake_clock.hpp (tests): a clock that is set by hand.
#pragma once

#include <atomic>

#include "plumb/runtime/clock.hpp"

namespace plumb::test {

class FakeClock final : public Clock {
 public:
  std::chrono::nanoseconds now() const override { return std::chrono::nanoseconds(now_.load()); }
  void advance(std::chrono::nanoseconds by) { now_.fetch_add(by.count()); }

 private:
  std::atomic<std::int64_t> now_{0};
};

}  // namespace plumb::test
