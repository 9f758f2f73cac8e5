// SPDX-License-Identifier: Apache-2.0
#include "comm_worker.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "plumb/runtime/run_error.hpp"
#include "step_words.hpp"
#include "transport_failure.hpp"

namespace plumb {
namespace {

// How often an idle seat looks at the clock. Messages and computations wake it at once; this only bounds how late a
// limit is noticed, and how soon a test's clock.
constexpr std::chrono::milliseconds watch_interval{50};

// Waking a thread and switching to it costs 5 to 20 us: below that a computation is better off communicating itself.
constexpr std::chrono::microseconds short_computation{20};
constexpr int num_short_for_solo = 16;

// How long a message may lie when a computation that was expected to be short is not. Looking in costs a few us each
// time.
constexpr std::chrono::milliseconds look_in_interval{1};

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

// --- both
// ---------------------------------------------------------------------------------------------------------------

// What the last sitter wrote is seen by the next one.
bool CommWorker::sit() {
  Seat expected = Seat::free;
  return seat_.compare_exchange_strong(expected, Seat::taken, std::memory_order_acquire, std::memory_order_relaxed);
}

void CommWorker::stand() { seat_.store(Seat::free, std::memory_order_release); }

void CommWorker::signal_compute() {
  events_.fetch_add(1, std::memory_order_release);
  events_.notify_one();
}

void CommWorker::call_thread() {
  {
    const std::lock_guard lock(park_mutex_);
    called_ = true;
  }
  park_.notify_one();
}

// --- whoever sits
// -------------------------------------------------------------------------------------------------------

// Does all that can be done now; true if that was anything.
bool CommWorker::turn() {
  CommState& comm = *job_.comm;
  try {
    bool moved = comm.computed(static_cast<std::size_t>(computed_.load(std::memory_order_acquire)));
    moved = comm.advance() || moved;
    moved = job_.port->collect(comm) || moved;
    runnable_.store(static_cast<std::int32_t>(comm.runnable()), std::memory_order_release);
    return moved;
  } catch (const TransportError& error) {
    translate(error.fault());
  }
}

void CommWorker::idle() {
  look_at_time();
  try {
    transport_.wait(std::min<std::chrono::nanoseconds>(watch_interval, wait_limit_));
  } catch (const TransportError& error) {
    translate(error.fault());
  }
}

// True while the compute worker waits for a step that may not run yet.
bool CommWorker::compute_waits() const {
  const std::int32_t computed = computed_.load(std::memory_order_acquire);
  return computed < static_cast<std::int32_t>(job_.plan->num_compute()) &&
         computed >= runnable_.load(std::memory_order_relaxed);
}

// One wait is over when another step is waited for or, after the last computation, when a message finished.
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

// --- the thread
// ---------------------------------------------------------------------------------------------------------

void CommWorker::serve() {
  for (std::int32_t begun = 0;;) {
    num_begun_.wait(begun, std::memory_order_acquire);
    ++begun;
    if (stopping_.load(std::memory_order_relaxed)) return;
    try {
      run_step();
    } catch (...) {
      // Still in the seat, and stays: nobody shall drive a failed step.
      error_ = std::current_exception();
      transport_.fail(text_of(error_));
      failed_.store(true, std::memory_order_relaxed);
      runnable_.store(all_runnable, std::memory_order_release);
      signal_compute();
    }
    num_ended_.store(begun, std::memory_order_release);
    num_ended_.notify_one();
  }
}

void CommWorker::run_step() {
  if (solo_wanted_.load(std::memory_order_relaxed)) park();
  while (!aborted_.load(std::memory_order_acquire)) {
    if (sit() && drive_shared()) return;
    park();
  }
}

// In the seat until the step is over (true) or the compute worker wants it (false).
bool CommWorker::drive_shared() {
  CommState& comm = *job_.comm;
  std::size_t published = comm.runnable();
  while (!comm.finished() && !aborted_.load(std::memory_order_acquire)) {
    const bool moved = turn();
    if (comm.runnable() != published) {
      published = comm.runnable();
      signal_compute();
    }
    if (moved) continue;
    if (solo_wanted_.load(std::memory_order_relaxed) && compute_waits()) {
      stand();
      signal_compute();
      return false;
    }
    idle();
  }
  stand();
  return true;
}

void CommWorker::park() {
  std::unique_lock lock(park_mutex_);
  park_.wait_for(lock, look_in_interval, [this] { return called_; });
  called_ = false;
}

// --- the compute worker
// ---------------------------------------------------------------------------------------------------

void CommWorker::begin(const Job& job) {
  job_ = job;
  error_ = nullptr;
  watching_ = false;
  computed_.store(0, std::memory_order_relaxed);
  runnable_.store(static_cast<std::int32_t>(job.comm->runnable()), std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  aborted_.store(false, std::memory_order_relaxed);
  seat_.store(Seat::free, std::memory_order_relaxed);
  num_begun_.fetch_add(1, std::memory_order_release);
  num_begun_.notify_one();
}

bool CommWorker::wait_runnable(std::size_t compute) {
  for (;;) {
    const std::int32_t events = events_.load(std::memory_order_acquire);
    if (runnable_.load(std::memory_order_acquire) > static_cast<std::int32_t>(compute)) {
      return !failed_.load(std::memory_order_relaxed);
    }
    if (solo_ && sit()) {
      seated([&] { drive_until([&] { return job_.comm->runnable() > compute; }); });
    } else {
      // No limit here: whoever sits watches this wait and ends it by failing.
      events_.wait(events, std::memory_order_acquire);
    }
  }
}

// Gets up after `work`, also when it throws: that error is this worker's, as if its Stage had thrown it.
template <class Work>
void CommWorker::seated(const Work& work) {
  try {
    work();
  } catch (...) {
    aborted_.store(true, std::memory_order_release);
    stand();
    throw;
  }
  stand();
}

template <class Done>
void CommWorker::drive_until(const Done& done) {
  while (!done()) {
    if (!turn()) idle();
  }
}

void CommWorker::computed(std::size_t count, bool wake, std::chrono::nanoseconds took) {
  computed_.store(static_cast<std::int32_t>(count), std::memory_order_release);
  judge(took);
  if (solo_ && sit()) {
    seated([this] { turn(); });
  } else if (wake) {
    transport_.notify();
  }
}

// Alone or not from now on.
void CommWorker::judge(std::chrono::nanoseconds took) {
  num_short_ = took < short_computation ? num_short_ + 1 : 0;
  const bool solo = num_short_ >= num_short_for_solo;
  if (solo == solo_) return;
  solo_ = solo;
  solo_wanted_.store(solo, std::memory_order_relaxed);
  if (!solo) call_thread();
}

void CommWorker::abort() {
  aborted_.store(true, std::memory_order_release);
  transport_.notify();
}

std::exception_ptr CommWorker::end() {
  if (solo_ && !aborted_.load(std::memory_order_relaxed) && sit()) {
    seated([this] { drive_until([this] { return job_.comm->finished(); }); });
  }
  call_thread();
  const std::int32_t begun = num_begun_.load(std::memory_order_relaxed);
  for (std::int32_t ended = num_ended_.load(std::memory_order_acquire); ended != begun;) {
    num_ended_.wait(ended, std::memory_order_acquire);
    ended = num_ended_.load(std::memory_order_acquire);
  }
  return error_;
}

}  // namespace plumb
