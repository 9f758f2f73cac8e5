// SPDX-License-Identifier: Apache-2.0
//
// comm_worker.hpp (private): the thread that communicates while its rank computes.
//
// Two counters carry everything between the workers: how many compute steps are done (the compute worker writes), and
// how many may run (this one writes). Within a step the thread alone touches the Transport, the CommState and the port;
// between steps it sleeps and the caller may touch them. It also keeps the time of both workers' waits. See
// docs/threads.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>

#include "comm_state.hpp"
#include "plumb/runtime/executor.hpp"
#include "transport_port.hpp"

namespace plumb {

class CommWorker {
 public:
  CommWorker(RankId rank, Transport& transport, const ExecutorOptions& options, const Clock& clock);
  ~CommWorker();
  CommWorker(const CommWorker&) = delete;
  CommWorker& operator=(const CommWorker&) = delete;

  // What one step works on; the worker's until end() returned.
  struct Job {
    const RankPlan* plan = nullptr;
    CommState* comm = nullptr;
    TransportPort* port = nullptr;
  };

  // --- called by the compute worker, in this order ------------------------------------------------------------------
  void begin(const Job& job);
  // Returns once compute step `compute` may run; false when the step has failed.
  bool wait_runnable(std::size_t compute);
  // Compute steps [0, count) are done. `wake`: somebody may wait for it.
  void computed(std::size_t count, bool wake);
  // The compute worker has failed: stop early.
  void abort();
  // Returns once the thread sleeps again; its error, if it had one.
  std::exception_ptr end();

 private:
  void serve();
  void run_step();
  void look_at_time();
  [[noreturn]] void translate(const TransportFault& fault) const;
  std::string waiting_action() const;
  void publish(std::int32_t runnable);

  const RankId rank_;
  Transport& transport_;
  const std::chrono::nanoseconds wait_limit_;
  const Clock& clock_;

  Job job_;
  std::exception_ptr error_;

  // Each on a line of its own: written by one worker, read by the other.
  alignas(64) std::atomic<std::int32_t> computed_{0};
  alignas(64) std::atomic<std::int32_t> runnable_{0};
  alignas(64) std::atomic<std::int32_t> num_begun_{0};
  alignas(64) std::atomic<std::int32_t> num_ended_{0};
  std::atomic<bool> failed_{false};   // by this thread; error_ tells why
  std::atomic<bool> aborted_{false};  // by the compute worker
  std::atomic<bool> stopping_{false};

  // This thread's watch over the current wait.
  std::size_t watched_compute_ = 0;
  std::size_t watched_comm_ = 0;
  bool watching_ = false;
  std::chrono::nanoseconds waiting_since_{0};

  std::jthread thread_;  // last: starts when all else is there
};

}  // namespace plumb
