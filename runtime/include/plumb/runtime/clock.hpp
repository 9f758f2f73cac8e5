// SPDX-License-Identifier: Apache-2.0
//
// clock.hpp: where the runtime reads the time for its limits, so that a time-out can be tested without waiting for it.
//
// Only limits and reported durations depend on it; results never do. Threads: now() may be called from any thread.
#pragma once

#include <chrono>

namespace plumb {

class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;

  // Time since any fixed moment; never runs backwards.
  virtual std::chrono::nanoseconds now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  std::chrono::nanoseconds now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
};

}  // namespace plumb
