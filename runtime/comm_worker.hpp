// SPDX-License-Identifier: Apache-2.0
//
// comm_worker.hpp (private): the thread that communicates while its rank computes, and the seat it shares with it.
//
// Whoever sits in the seat drives communication: it alone touches the Transport, the CommState and the port. Usually
// that is the thread of this class, all through the step. When computations are so short that waking a thread costs
// more than they do, the compute worker takes the seat between them ("solo") and the thread only looks in now and then,
// to take over should a computation turn out long after all. Who drives changes no bit. docs/threads.md tells why
// nothing can hang.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
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

  // What one step works on; out of the caller's hands until end() returned.
  struct Job {
    const RankPlan* plan = nullptr;
    CommState* comm = nullptr;
    TransportPort* port = nullptr;
  };

  // --- called by the compute worker, in this order ------------------------------------------------------------------
  void begin(const Job& job);
  // Returns once compute step `compute` may run; false when the step has failed. Throws when it failed in this call.
  bool wait_runnable(std::size_t compute);
  // Compute steps [0, count) are done, the last in `took`. `wake`: something may wait for it. Throws as wait_runnable.
  void computed(std::size_t count, bool wake, std::chrono::nanoseconds took);
  // The compute worker has failed: stop early.
  void abort();
  // Returns once all is sent and received, or the step failed, and the thread sleeps again; its error, if it had one.
  std::exception_ptr end();

 private:
  enum class Seat : std::uint8_t { free, taken };

  // --- the thread ---------------------------------------------------------------------------------------------------
  void serve();
  void run_step();
  bool drive_shared();
  void park();

  // --- whoever sits
  // ---------------------------------------------------------------------------------------------------
  bool turn();
  void idle();
  void look_at_time();
  [[noreturn]] void translate(const TransportFault& fault) const;
  std::string waiting_action() const;
  bool compute_waits() const;

  // --- both
  // -----------------------------------------------------------------------------------------------------------
  bool sit();
  void stand();
  void signal_compute();
  void call_thread();

  // --- the compute worker
  // -----------------------------------------------------------------------------------------------
  template <class Work>
  void seated(const Work& work);
  template <class Done>
  void drive_until(const Done& done);
  void judge(std::chrono::nanoseconds took);

  const RankId rank_;
  Transport& transport_;
  const std::chrono::nanoseconds wait_limit_;
  const Clock& clock_;

  Job job_;
  std::exception_ptr error_;

  // Written by one side and read by the other, hence on lines of their own.
  alignas(64) std::atomic<std::int32_t> computed_{0};  // compute steps done
  alignas(64) std::atomic<std::int32_t> runnable_{0};  // compute steps that may run
  alignas(64) std::atomic<std::int32_t> events_{0};    // counts what the compute worker may sleep for
  alignas(64) std::atomic<Seat> seat_{Seat::free};
  alignas(64) std::atomic<std::int32_t> num_begun_{0};
  std::atomic<std::int32_t> num_ended_{0};
  std::atomic<bool> failed_{false};       // by the thread; error_ tells why
  std::atomic<bool> aborted_{false};      // by the compute worker
  std::atomic<bool> solo_wanted_{false};  // the thread shall leave the seat when the compute worker waits
  std::atomic<bool> stopping_{false};

  // The compute worker's own.
  bool solo_ = false;
  int num_short_ = 0;  // short computations in a row

  // The seat's watch over the current wait.
  std::size_t watched_compute_ = 0;
  std::size_t watched_comm_ = 0;
  bool watching_ = false;
  std::chrono::nanoseconds waiting_since_{0};

  std::mutex park_mutex_;
  std::condition_variable park_;
  bool called_ = false;

  std::jthread thread_;  // last: starts when all else is there
};

}  // namespace plumb
