// SPDX-License-Identifier: Apache-2.0
// link_board.hpp: the emulated network ends behind a lock, and one sleeping place per rank.
//
// Nobody owns the time: whoever looks moves the wire on to now. A rank asleep is woken when something of its own will
// be over earlier than it meant to wake; the sender of a message is up when it leaves the wire, and so starts what
// waited for its ends. Lock and sleeping places lie in the shared block and work across processes; a process that dies
// with the lock breaks the board, and everybody learns of it by a TransportError. Private to comm.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include <pthread.h>
#include <semaphore.h>

#include "plumb/comm/shared_memory.hpp"
#include "wire_model.hpp"

namespace plumb::comm {

class LinkBoard {
 public:
  using Time = WireModel::Time;

  LinkBoard(std::unique_ptr<SharedMemory> memory, bool fresh, std::int32_t num_ranks, std::size_t most_messages,
            const LinkShape& shape);
  static std::size_t bytes_needed(std::int32_t num_ranks, std::size_t most_messages);

  static Time now();

  std::int32_t size() const noexcept { return num_ranks_; }

  /// Throws std::length_error when too many messages are in flight.
  void post(PeerId from, PeerId to, Lane lane, bool is_send, std::uint32_t ticket, std::size_t size_bytes,
            std::uint64_t turn);
  bool is_single_stream() const noexcept { return single_stream_; }

  /// Calls `each(completion)` for what is over for `rank` at `until` or before.
  template <class Each>
  void collect(PeerId rank, Time until, const Each& each) {
    const Locked locked(*this, rank);
    model_.advance(now());
    while (const auto completion = model_.take(rank, until))
      each(*completion);
  }

  /// Sleeps until something is over for `rank` (at `until` or before), somebody wakes it, or `deadline`.
  void sleep(PeerId rank, Time until, Time deadline);
  /// Ends the current or else the next sleep. Any thread or process.
  void wake(PeerId rank) noexcept;
  void wake_all() noexcept;

 private:
  struct alignas(64) Bed {
    sem_t bell;
    std::atomic<bool> rung;
  };
  struct alignas(64) Shared {
    pthread_mutex_t mutex;
    std::atomic<bool> broken;
  };
  static_assert(std::atomic<bool>::is_always_lock_free);

  // Holds the lock; on leaving wakes whom the holder's calls have made wake earlier, but not the holder.
  class Locked {
   public:
    Locked(LinkBoard& board, PeerId holder);
    ~Locked();
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

   private:
    LinkBoard& board_;
    PeerId holder_;
  };

  std::unique_ptr<SharedMemory> memory_;
  std::int32_t num_ranks_;
  bool single_stream_;
  Shared* shared_;
  Bed* beds_;
  WireModel model_;
};

}  // namespace plumb::comm
