// SPDX-License-Identifier: Apache-2.0
#include "inproc_ranks.hpp"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "plumb/comm/inproc.hpp"

namespace plumb::testing {

void run_as_threads(std::int32_t num_ranks, const std::function<void(RankEnds)>& body) {
  InprocHub hub(num_ranks);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (std::int32_t rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto transport = hub.make_transport(PeerId{rank});
      const auto control = hub.make_control(PeerId{rank});
      try {
        body({*transport, *control});
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
        transport->fail(error.what());
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace plumb::testing
