// SPDX-License-Identifier: Apache-2.0
// wake_event.hpp: one thread waits, any thread wakes it; a wake that comes early is remembered.
//
// set() costs one atomic exchange while nobody sleeps. Private to comm.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace plumb::comm {

class WakeEvent {
 public:
  void set() noexcept {
    // Sequentially consistent on both sides: either set() sees the sleeper or the sleeper sees set_.
    if (set_.exchange(true)) return;
    if (!asleep_.load()) return;
    { const std::lock_guard lock(mutex_); }  // the sleeper is past its last look at set_ and really waits
    condition_.notify_one();
  }

  /// True if set since the last consume(); forgets it.
  bool consume() noexcept { return set_.load(std::memory_order_relaxed) && set_.exchange(false); }

  bool is_set() const noexcept { return set_.load(std::memory_order_relaxed); }

  /// Sleeps until set or for `limit`; does not forget.
  void sleep(std::chrono::nanoseconds limit) {
    std::unique_lock lock(mutex_);
    asleep_.store(true);
    condition_.wait_for(lock, limit, [this] { return set_.load(); });
    asleep_.store(false);
  }

 private:
  std::atomic<bool> set_{false};
  std::atomic<bool> asleep_{false};
  std::mutex mutex_;
  std::condition_variable condition_;
};

}  // namespace plumb::comm
