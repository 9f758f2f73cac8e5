// SPDX-License-Identifier: Apache-2.0
#include "link_board.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <new>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <time.h>

namespace plumb::comm {
std::size_t LinkBoard::bytes_needed(std::int32_t num_ranks, std::size_t most_messages) {
  return sizeof(Shared) + static_cast<std::size_t>(num_ranks) * sizeof(Bed) +
         WireModel::bytes_needed(num_ranks, most_messages);
}

LinkBoard::LinkBoard(std::unique_ptr<SharedMemory> memory, bool fresh, std::int32_t num_ranks,
                     std::size_t most_messages, const LinkShape& shape)
    : memory_(std::move(memory)),
      num_ranks_(num_ranks),
      single_stream_(shape.single_stream),
      shared_(reinterpret_cast<Shared*>(memory_->data())),
      beds_(reinterpret_cast<Bed*>(memory_->data() + sizeof(Shared))),
      model_(memory_->data() + sizeof(Shared) + static_cast<std::size_t>(num_ranks) * sizeof(Bed), fresh, num_ranks,
             most_messages, shape) {
  if (!fresh) return;
  new (shared_) Shared{};
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&shared_->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  for (std::int32_t r = 0; r < num_ranks; ++r) {
    Bed& bed = *new (beds_ + r) Bed{};
    sem_init(&bed.bell, 1, 0);
  }
}

LinkBoard::Time LinkBoard::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

LinkBoard::Locked::Locked(LinkBoard& board, PeerId holder) : board_(board), holder_(holder) {
  Shared& shared = *board.shared_;
  if (pthread_mutex_lock(&shared.mutex) == EOWNERDEAD) {
    shared.broken.store(true);
    pthread_mutex_consistent(&shared.mutex);
  }
  if (!shared.broken.load()) return;
  pthread_mutex_unlock(&shared.mutex);
  TransportFault fault;
  fault.kind = TransportErrorKind::net;
  fault.rank = holder;
  fault.text = "a process of the job ended inside the emulated links";
  throw TransportError(std::move(fault));
}

// Woken threads want the lock at once: most are woken after it has been given back.
LinkBoard::Locked::~Locked() {
  std::array<PeerId, 8> later;
  std::size_t num_later = 0;
  for (const PeerId sleeper : board_.model_.to_wake()) {
    if (sleeper == holder_) continue;
    if (num_later < later.size()) {
      later[num_later++] = sleeper;
    } else {
      board_.wake(sleeper);
    }
  }
  board_.model_.clear_to_wake();
  pthread_mutex_unlock(&board_.shared_->mutex);
  for (std::size_t i = 0; i < num_later; ++i)
    board_.wake(later[i]);
}

void LinkBoard::post(PeerId from, PeerId to, Lane lane, bool is_send, std::uint32_t ticket, std::size_t size_bytes,
                     std::uint64_t turn) {
  const Locked locked(*this, is_send ? from : to);
  if (!model_.post(now(), from, to, lane, is_send, ticket, size_bytes, turn)) {
    throw std::length_error("the emulated links have no room for another message in flight");
  }
}

void LinkBoard::sleep(PeerId rank, Time until, Time deadline) {
  Bed& bed = beds_[rank.value];
  {
    const Locked locked(*this, rank);
    const Time start = now();
    model_.advance(start);
    const Time due = model_.next_completion(rank);
    if (due <= std::min(start, until)) return;
    if (due <= until) deadline = std::min(deadline, due);
    deadline = std::min(deadline, model_.egress_free(rank));
    if (deadline <= start) return;
    model_.set_wake_time(rank, deadline);
  }
  const timespec at{.tv_sec = deadline / 1'000'000'000, .tv_nsec = deadline % 1'000'000'000};
  while (!bed.rung.load(std::memory_order_acquire)) {
    if (sem_clockwait(&bed.bell, CLOCK_MONOTONIC, &at) != 0 && errno != EINTR) break;
  }
  bed.rung.exchange(false);
  const Locked locked(*this, rank);
  model_.set_wake_time(rank, 0);
}

void LinkBoard::wake(PeerId rank) noexcept {
  Bed& bed = beds_[rank.value];
  if (!bed.rung.exchange(true)) sem_post(&bed.bell);
}

void LinkBoard::wake_all() noexcept {
  for (std::int32_t r = 0; r < num_ranks_; ++r)
    wake(PeerId{r});
}

namespace {

std::size_t checked(std::int32_t num_ranks, std::size_t most_messages, const LinkShape& shape) {
  if (num_ranks < 1 || num_ranks > 512) {
    throw std::invalid_argument(fmt::format("{} ranks on emulated links, legal are 1 to 512", num_ranks));
  }
  if (shape.latency.count() < 0 || !std::isfinite(shape.ns_per_byte) || shape.ns_per_byte < 0) {
    throw std::invalid_argument("an emulated link has a negative latency or rate");
  }
  if (most_messages > std::size_t{1} << 30) {
    throw std::invalid_argument(
        fmt::format("{} messages in flight on emulated links, legal are at most 2^30", most_messages));
  }
  return LinkBoard::bytes_needed(num_ranks, most_messages);
}

}  // namespace
}  // namespace plumb::comm

namespace plumb {

EmulatedLinks::EmulatedLinks(std::int32_t num_ranks, std::size_t most_messages, const LinkShape& shape)
    : board_(std::make_unique<comm::LinkBoard>(
          std::make_unique<SharedMemory>(comm::checked(num_ranks, most_messages, shape)), true, num_ranks,
          most_messages, shape)) {}

EmulatedLinks::EmulatedLinks(ControlPlane& control, std::size_t most_messages, const LinkShape& shape,
                             std::chrono::nanoseconds limit) {
  auto memory = std::make_unique<SharedMemory>(control, comm::checked(control.size(), most_messages, shape), limit);
  board_ = std::make_unique<comm::LinkBoard>(std::move(memory), control.rank().value == 0, control.size(),
                                             most_messages, shape);
  control.barrier(limit);  // nobody uses the block before rank 0 has laid it out
}

EmulatedLinks::~EmulatedLinks() = default;

std::int32_t EmulatedLinks::size() const noexcept { return board_->size(); }

}  // namespace plumb
