// SPDX-License-Identifier: Apache-2.0
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "plumb/kernels/cpu_execution.hpp"

namespace plumb::cpu {

// A call is a generation: workers run its work once and count themselves done.
struct CpuThreads::State {
  std::mutex mutex;
  std::condition_variable started;
  std::condition_variable finished;
  void (*work)(void*, int) = nullptr;
  void* context = nullptr;
  long generation = 0;
  int num_running = 0;
  bool stop = false;
  std::vector<std::jthread> workers;  // last: joined before the rest goes

  void serve(int thread) {
    long seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      started.wait(lock, [&] { return stop || generation != seen; });
      if (stop) {
        return;
      }
      seen = generation;
      lock.unlock();
      work(context, thread);
      lock.lock();
      if (--num_running == 0) {
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
    state_->stop = true;
  }
  state_->started.notify_all();
}

int CpuThreads::num_threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void CpuThreads::run(void (*work)(void*, int), void* context) {
  State& state = *state_;
  if (!state.workers.empty()) {
    const std::lock_guard lock(state.mutex);
    state.work = work;
    state.context = context;
    state.num_running = static_cast<int>(state.workers.size());
    ++state.generation;
    state.started.notify_all();
  }
  work(context, 0);
  if (!state.workers.empty()) {
    std::unique_lock lock(state.mutex);
    state.finished.wait(lock, [&] { return state.num_running == 0; });
  }
}

}  // namespace plumb::cpu
