// SPDX-License-Identifier: Apache-2.0
// mpi_transport.hpp: Transport over non-blocking MPI calls.
//
// A message is one or more pieces (a segment, or part of one beyond the piece size), each one MPI request. All requests
// in flight lie in one dense array that MPI_Testsome walks. A large piece to be received first waits, outside MPI,
// until a message for it is there and has the right length; whatever is received later on the same channel queues
// behind it. Private to comm.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include <mpi.h>

#include "backoff.hpp"
#include "mpi_job.hpp"
#include "node_pool.hpp"
#include "wake_event.hpp"

namespace plumb::comm {

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(MpiJob& job);

  PeerId rank() const noexcept override { return job_.rank(); }
  std::int32_t size() const noexcept override { return job_.size(); }
  void reserve(std::size_t num_messages, std::size_t num_segments) override;
  Ticket post_send(PeerId to, Lane lane, std::span<const ConstSegment> segments) override;
  Ticket post_receive(PeerId from, Lane lane, std::span<const Segment> segments) override;
  std::size_t progress(std::span<Ticket> completed) override;
  void wait(std::chrono::nanoseconds limit) override;
  void notify() noexcept override { event_.set(); }
  const Counters& counters() const noexcept override { return counters_; }
  void fail(std::string_view reason) noexcept override;

  /// Ends this rank's part: in a sound job waits for all ranks, in a failed one drains. False: the job must be aborted.
  bool leave() noexcept;

 private:
  struct Message {
    std::uint32_t number = 0;  ///< the ticket
    PeerId peer;
    Lane lane = Lane::urgent;
    bool is_send = false;
    std::size_t num_open_pieces = 0;
    std::size_t moved_bytes = 0;
    Message* next = nullptr;
  };
  struct Piece {
    Message* message = nullptr;
    std::size_t size_bytes = 0;
  };
  /// A piece to be received that MPI does not know of yet.
  struct Waiting {
    Piece piece;
    std::byte* data = nullptr;
    Waiting* next = nullptr;
    std::uint32_t number = 0;
  };
  struct WaitingQueue {
    Waiting* head = nullptr;
    Waiting* tail = nullptr;
  };

  /// A message that nobody wants any more, received so that its sender gets rid of it.
  struct Unwanted {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  template <class AnySegment, class Start>
  Ticket post(PeerId peer, Lane lane, bool is_send, std::span<const AnySegment> segments, Start start);
  void send_piece(const Piece& piece, const std::byte* data);
  void receive_piece(const Piece& piece, std::byte* data);
  void start_receive(const Piece& piece, std::byte* data);
  void match_waiting(PeerId from, Lane lane);
  bool match_large(const Waiting& waiting);
  void forget_waiting();
  void swallow(MPI_Message message, int size_bytes);
  void advance();
  void finish_piece(int index, const MPI_Status& status, int error, std::optional<TransportFault>& fault);
  TransportFault size_fault(const Message& message, std::size_t expected_bytes, std::size_t got_bytes) const;
  void read_note(const MPI_Status& status);
  void drop_pieces(int num_done, std::size_t note_index);
  void count(const Message& message) noexcept;
  void check_left(PeerId peer);
  [[noreturn]] void fail_and_throw(TransportFault fault);
  void record_failure(std::string_view reason) noexcept;
  bool drain();
  bool await_others();
  void swallow_unwanted();
  void pause(Backoff::Clock::time_point now, Backoff::Clock::time_point deadline);

  MpiJob& job_;
  WakeEvent event_;
  Backoff backoff_;
  NodePool<Message> messages_;
  Message* ready_ = nullptr;  ///< finished, oldest first, not yet handed out
  Message* last_ready_ = nullptr;
  NodePool<Waiting> waiting_;
  std::vector<std::array<WaitingQueue, num_lanes>> queues_;  ///< [peer][lane]
  std::size_t num_waiting_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<Piece> pieces_;  ///< same index as requests_
  std::vector<int> done_;      ///< room for MPI_Testsome
  std::vector<MPI_Status> statuses_;
  std::vector<PostedToPeer> posted_;
  Counters counters_;
  std::list<Unwanted> unwanted_;
  bool cancelled_ = false;  ///< fail() was called: whatever is still in requests_ may point to memory that is gone
  bool told_drained_ = false;
  bool drained_ = false;
};

}  // namespace plumb::comm
