// SPDX-License-Identifier: Apache-2.0
//
// parallel.hpp (private): the ranks of a large program are worked on by several threads. Each rank's result depends on
// nothing but the rank, so that it is the same for any number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace plumb {

// Calls work(index, worker) once for every index below `count`, from `num_threads` threads, this one included; `worker`
// is below num_threads. Throws the first exception that any call has thrown, when all threads have ended.
template <class Work>
void for_each_in_parallel(std::size_t count, std::size_t num_threads, Work&& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr thrown;
  const auto take_turns = [&](std::size_t worker) {
    try {
      for (std::size_t index = next++; index < count; index = next++)
        work(index, worker);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!thrown) thrown = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t worker = 1; worker < num_threads; ++worker)
      others.emplace_back(take_turns, worker);
    take_turns(0);
  }
  if (thrown) std::rethrow_exception(thrown);
}

// How many threads are worth their start for that many messages on that many ranks.
inline std::size_t threads_worth_it(std::size_t num_messages, std::size_t num_ranks, int most_threads) {
  constexpr std::size_t messages_per_thread = 50'000;
  const std::size_t cores = most_threads > 0 ? static_cast<std::size_t>(most_threads)
                                             : std::max<std::size_t>(std::thread::hardware_concurrency(), 1);
  return std::clamp<std::size_t>(num_messages / messages_per_thread, 1, std::min(cores, num_ranks));
}

}  // namespace plumb
