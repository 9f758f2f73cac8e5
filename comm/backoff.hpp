// SPDX-License-Identifier: Apache-2.0
// backoff.hpp: how a waiting thread spends its time: first it looks again at once, then it lends its core to others
// between looks, then it sleeps between them.
//
// The clock runs since the last activity and not since the last wait, so that a caller who waits in short slices
// does not spin for ever. With more busy threads than cores the first phase is skipped: spinning then keeps the very
// thread away that would bring the message. Private to comm.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

namespace plumb::comm {

enum class Pause : std::uint8_t { none, yield, sleep };

struct BackoffPolicy {
  std::chrono::nanoseconds yield_limit{};  ///< idle for longer: sleep
  std::uint32_t looks_per_yield = 1;
};

class Backoff {
 public:
  using Clock = std::chrono::steady_clock;

  /// `num_local_ranks` share this machine; each keeps two threads busy, one computing and one communicating.
  Backoff(std::int32_t num_local_ranks, const BackoffPolicy& policy)
      : spin_limit_(2U * static_cast<unsigned>(num_local_ranks) <= std::thread::hardware_concurrency() ? 20'000 : 0),
        policy_(policy) {}

  void activity() noexcept { fresh_ = true; }

  /// What to do now that there was nothing to do.
  Pause next(Clock::time_point now) noexcept {
    if (fresh_) idle_since_ = now;
    fresh_ = false;
    const auto idle = now - idle_since_;
    if (idle < spin_limit_) return Pause::none;
    if (idle >= policy_.yield_limit) return Pause::sleep;
    return ++num_looks_ % policy_.looks_per_yield == 0 ? Pause::yield : Pause::none;
  }

 private:
  std::chrono::nanoseconds spin_limit_;
  BackoffPolicy policy_;
  bool fresh_ = true;
  Clock::time_point idle_since_{};
  std::uint32_t num_looks_ = 0;
};

}  // namespace plumb::comm
