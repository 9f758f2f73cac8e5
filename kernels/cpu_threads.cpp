// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "plumb/kernels/cpu_execution.hpp"

namespace plumb::cpu {

namespace {

// Waking a sleeper takes as long as a short operator. So whoever waits looks on for about that long before it sleeps,
// and lets others have the processor meanwhile.
constexpr std::chrono::microseconds kLookOn{50};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

template <class Ready>
bool look_on(const Ready& ready) {
  const auto end = std::chrono::steady_clock::now() + kLookOn;
  do {
    for (int k = 0; k < 32; ++k) {
      if (ready()) {
        return true;
      }
      pause();
    }
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

}  // namespace

// A call is a generation: workers run its work once and count themselves done.
struct CpuThreads::State {
  std::mutex mutex;  // held to change what a sleeper waits for
  std::condition_variable started;
  std::condition_variable finished;
  void (*work)(void*, int) = nullptr;
  void* context = nullptr;
  std::atomic<long> generation = 0;
  std::atomic<int> num_running = 0;
  std::atomic<bool> stop = false;
  std::vector<std::jthread> workers;  // last: joined before the rest goes

  void serve(int thread) {
    for (long seen = 0;; ++seen) {
      const auto called = [&] { return stop.load() || generation.load() != seen; };
      if (!look_on(called)) {
        std::unique_lock lock(mutex);
        started.wait(lock, called);
      }
      if (stop.load()) {
        return;
      }
      work(context, thread);
      if (num_running.fetch_sub(1) == 1) {
        // Either the caller sees the count before it sleeps, or it sleeps by now.
        { const std::lock_guard lock(mutex); }
        finished.notify_one();
      }
    }
  }
};

CpuThreads::CpuThreads(int num_threads) : state_(std::make_unique<State>()) {
  if (num_threads < 1 || num_threads > 1024) {
    throw std::invalid_argument("cpu threads: number of threads is " + std::to_string(num_threads) +
                                "; legal: 1..1024");
  }
  for (int k = 1; k < num_threads; ++k) {
    state_->workers.emplace_back([state = state_.get(), k] { state->serve(k); });
  }
}

CpuThreads::~CpuThreads() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop.store(true);
  }
  state_->started.notify_all();
}

int CpuThreads::num_threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void CpuThreads::run(void (*work)(void*, int), void* context) {
  State& state = *state_;
  if (state.workers.empty()) {
    work(context, 0);
    return;
  }
  {
    const std::lock_guard lock(state.mutex);
    state.work = work;
    state.context = context;
    state.num_running.store(static_cast<int>(state.workers.size()));
    ++state.generation;
  }
  state.started.notify_all();
  work(context, 0);
  const auto done = [&] { return state.num_running.load() == 0; };
  if (!look_on(done)) {
    std::unique_lock lock(state.mutex);
    state.finished.wait(lock, done);
  }
}

}  // namespace plumb::cpu
