// SPDX-License-Identifier: Apache-2.0
// backoff.hpp: how a waiting thread spends its time: first it looks again at once, then it lends its core to others,
// then it sleeps.
//
// The clock runs since the last activity and not since the last wait, so that a caller who waits in short slices
// does not spin for ever. With more busy threads than cores the first phase is skipped: spinning then keeps the very
// thread away that would bring the message. Private to comm.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace plumb::comm {

enum class Pause : std::uint8_t { spin, yield, sleep };

class Backoff {
 public:
  using Clock = std::chrono::steady_clock;

  /// `num_local_ranks` share this machine; each keeps two threads busy, one computing and one communicating. Who is
  /// woken by the sender can sleep early; who only wakes up to look sleeps late, as each sleep costs a message ~100 us.
  Backoff(std::int32_t num_local_ranks, std::chrono::nanoseconds yield_limit)
      : spin_limit_(2U * static_cast<unsigned>(num_local_ranks) <= std::thread::hardware_concurrency() ? 20'000 : 0),
        yield_limit_(yield_limit) {}

  void activity() noexcept { fresh_ = true; }

  /// What to do now that there was nothing to do.
  Pause next(Clock::time_point now) noexcept {
    if (fresh_) idle_since_ = now;
    fresh_ = false;
    const auto idle = now - idle_since_;
    if (idle < spin_limit_) return Pause::spin;
    return idle < yield_limit_ ? Pause::yield : Pause::sleep;
  }

 private:
  std::chrono::nanoseconds spin_limit_;
  std::chrono::nanoseconds yield_limit_;
  bool fresh_ = true;
  Clock::time_point idle_since_{};
};

}  // namespace plumb::comm
