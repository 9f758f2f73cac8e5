// SPDX-License-Identifier: Apache-2.0
#include "comm_worker.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "plumb/runtime/run_error.hpp"
#include "step_words.hpp"
#include "transport_failure.hpp"

namespace plumb {
namespace {

// How often an idle worker looks at the clock. Messages and computations wake it at once; this only bounds how late a
// limit is noticed, and how soon a test's clock.
constexpr std::chrono::milliseconds watch_interval{50};

constexpr std::int32_t all_runnable = std::numeric_limits<std::int32_t>::max();

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "unknown exception";
  }
}

}  // namespace

CommWorker::CommWorker(RankId rank, Transport& transport, const ExecutorOptions& options, const Clock& clock)
    : rank_(rank), transport_(transport), wait_limit_(options.wait_limit), clock_(clock), thread_([this] {
        serve();
      }) {}

CommWorker::~CommWorker() {
  stopping_.store(true, std::memory_order_relaxed);
  num_begun_.fetch_add(1, std::memory_order_release);
  num_begun_.notify_one();
}

void CommWorker::begin(const Job& job) {
  job_ = job;
  error_ = nullptr;
  computed_.store(0, std::memory_order_relaxed);
  runnable_.store(static_cast<std::int32_t>(job.comm->runnable()), std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  aborted_.store(false, std::memory_order_relaxed);
  num_begun_.fetch_add(1, std::memory_order_release);
  num_begun_.notify_one();
}

bool CommWorker::wait_runnable(std::size_t compute) {
  std::int32_t runnable = runnable_.load(std::memory_order_acquire);
  while (runnable <= static_cast<std::int32_t>(compute)) {
    // No limit here: the communication worker watches this wait and ends it by failing.
    runnable_.wait(runnable, std::memory_order_acquire);
    runnable = runnable_.load(std::memory_order_acquire);
  }
  return !failed_.load(std::memory_order_relaxed);
}

void CommWorker::computed(std::size_t count, bool wake) {
  computed_.store(static_cast<std::int32_t>(count), std::memory_order_release);
  if (wake) transport_.notify();
}

void CommWorker::abort() {
  aborted_.store(true, std::memory_order_release);
  transport_.notify();
}

std::exception_ptr CommWorker::end() {
  const std::int32_t begun = num_begun_.load(std::memory_order_relaxed);
  for (std::int32_t ended = num_ended_.load(std::memory_order_acquire); ended != begun;) {
    num_ended_.wait(ended, std::memory_order_acquire);
    ended = num_ended_.load(std::memory_order_acquire);
  }
  return error_;
}

void CommWorker::serve() {
  for (std::int32_t begun = 0;;) {
    num_begun_.wait(begun, std::memory_order_acquire);
    ++begun;
    if (stopping_.load(std::memory_order_relaxed)) return;
    try {
      run_step();
    } catch (...) {
      error_ = std::current_exception();
      transport_.fail(text_of(error_));
      failed_.store(true, std::memory_order_relaxed);
      publish(all_runnable);
    }
    num_ended_.store(begun, std::memory_order_release);
    num_ended_.notify_one();
  }
}

void CommWorker::run_step() {
  CommState& comm = *job_.comm;
  watching_ = false;
  std::size_t published = comm.runnable();
  try {
    while (!comm.finished()) {
      if (aborted_.load(std::memory_order_acquire)) return;
      bool moved = comm.computed(static_cast<std::size_t>(computed_.load(std::memory_order_acquire)));
      moved = comm.advance() || moved;
      moved = job_.port->collect(comm) || moved;
      if (comm.runnable() != published) {
        published = comm.runnable();
        publish(static_cast<std::int32_t>(published));
      }
      if (moved) continue;
      look_at_time();
      transport_.wait(std::min<std::chrono::nanoseconds>(watch_interval, wait_limit_));
    }
  } catch (const TransportError& error) {
    translate(error.fault());
  }
}

void CommWorker::publish(std::int32_t runnable) {
  runnable_.store(runnable, std::memory_order_release);
  runnable_.notify_one();
}

// The compute worker waits exactly when it has done all that may run. One wait is over when another step is waited for
// or, after the last computation, when a message finished.
void CommWorker::look_at_time() {
  const CommState& comm = *job_.comm;
  const auto computed = static_cast<std::size_t>(computed_.load(std::memory_order_acquire));
  const bool all_computed = computed == job_.plan->num_compute();
  if (computed < comm.runnable() && !all_computed) {
    watching_ = false;
    return;
  }
  const std::chrono::nanoseconds now = clock_.now();
  if (!watching_ || computed != watched_compute_ || (all_computed && comm.num_done() != watched_comm_)) {
    watching_ = true;
    watched_compute_ = computed;
    watched_comm_ = comm.num_done();
    waiting_since_ = now;
    return;
  }
  if (now - waiting_since_ < wait_limit_) return;
  std::string what = "nothing";
  std::optional<RankId> peer;
  if (const auto blocker = comm.blocker(computed)) {
    if (blocker->comm) {
      what = comm_sentence(*job_.plan, blocker->step);
      const CommStep& step = job_.plan->steps().comm[static_cast<std::size_t>(blocker->step)];
      if (step.kind == CommKind::send || step.kind == CommKind::receive) peer = step.peer;
    } else {
      what = compute_action(*job_.plan, static_cast<std::size_t>(blocker->step));
    }
  }
  throw StallError(rank_, waiting_action(), what, peer, now - waiting_since_);
}

std::string CommWorker::waiting_action() const {
  const auto computed = static_cast<std::size_t>(computed_.load(std::memory_order_acquire));
  return computed < job_.plan->num_compute() ? compute_action(*job_.plan, computed) : "the end of the step";
}

void CommWorker::translate(const TransportFault& fault) const {
  const auto peer = fault.peer ? std::optional(RankId(fault.peer->value)) : std::nullopt;
  if (fault.kind == TransportErrorKind::protocol && peer) {
    const std::int32_t comm = job_.port->oldest_in_flight(*peer, fault.lane.value_or(Lane::urgent), false);
    throw MessageMismatch(rank_, comm < 0 ? waiting_action() : comm_action(*job_.plan, comm), *peer,
                          fmt::format("the message from rank {} is not the expected one: {}", peer->value, fault.text));
  }
  throw peer_error(rank_, waiting_action(), fault);
}

}  // namespace plumb
