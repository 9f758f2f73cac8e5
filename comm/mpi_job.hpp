// SPDX-License-Identifier: Apache-2.0
// mpi_job.hpp: what transport and control plane of an MPI rank share: the communicator, the notes by which ranks tell
// each other that they failed or left, and the first failure this rank knows of.
//
// Everything, notes too, travels on one communicator with one tag per purpose. So MPI's order between two ranks holds
// across purposes: when a rank's last note is there, whatever it sent before is there. A rank's last note is `left`
// in a sound job and `drained` in a failed one. Private to comm.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include <mpi.h>

#include "backoff.hpp"
#include "plumb/comm/mpi.hpp"

namespace plumb::comm {

/// Tags; a lane's tag is its own value.
inline constexpr int note_tag = static_cast<int>(num_lanes);
inline constexpr int text_tag = note_tag + 1;

/// A rank waits for MPI by looking. A look that finds nothing may already give the core away inside MPI (Open MPI's
/// mpi_yield_when_idle, which mpirun sets when it knows that ranks share cores), so we add a yield only now and then.
/// It sleeps late: each sleep costs a message some 100 us.
inline constexpr BackoffPolicy looking_policy{.yield_limit = std::chrono::milliseconds(1), .looks_per_yield = 4};

/// How many messages a rank has started with one peer on one lane.
struct PostedCounts {
  std::uint64_t sends = 0;
  std::uint64_t receives = 0;
};
using PostedToPeer = std::array<PostedCounts, num_lanes>;

enum class NoteKind : std::int32_t {
  failed,   ///< the sender has failed for the reason in `text`
  drained,  ///< the job has failed; all the sender's messages are done with, it sends no more
  left,     ///< the sender is done for good; `posted` says how many messages it ever started with the reader
};

struct Note {
  NoteKind kind = NoteKind::failed;
  PostedToPeer posted{};
  std::array<char, 400> text{};
};

/// Brings MPI up and down if nobody else did.
class MpiLibrary {
 public:
  MpiLibrary();
  ~MpiLibrary();
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  /// Leaves MPI up for good: finalising waits for all ranks, and some have not come.
  void abandon() noexcept { owned_ = false; }

 private:
  bool owned_ = false;
};

class MpiJob {
 public:
  explicit MpiJob(const MpiOptions& options);
  /// REQUIRES: every rank's last note was sent and read, or abort().
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  const MpiOptions& options() const noexcept { return options_; }
  MPI_Comm communicator() const noexcept { return communicator_; }
  PeerId rank() const noexcept { return rank_; }
  std::int32_t size() const noexcept { return size_; }
  std::int32_t num_local_ranks() const noexcept { return num_local_ranks_; }
  std::atomic<bool>& inside() noexcept { return inside_; }

  /// Throws kind net with MPI's own words unless `code` is MPI_SUCCESS.
  void check(int code, const char* call) const;
  TransportFault net_fault(int code, const char* call) const;

  /// Reads the notes that have come and moves MPI on.
  void poll();
  /// For a caller that tests it together with requests of its own, which saves a round of MPI's progress engine: the
  /// request of the next note (null when alone), and what to do once it is done.
  MPI_Request note_request() const noexcept { return note_request_; }
  void note_arrived(const MPI_Status& status);

  bool has_failed() const noexcept { return failure_.has_value(); }
  void throw_if_failed() const {
    if (failure_) throw TransportError(*failure_);
  }
  /// Records the failure and tells all ranks, unless there was one already.
  void fail(TransportFault fault);

  /// What a peer said when it left, or null.
  const PostedToPeer* left(PeerId peer) const noexcept;

  void tell_left(const std::vector<PostedToPeer>& posted);
  void tell_drained();
  /// True when every other rank has sent its last note and this rank's own notes are gone.
  bool all_left() noexcept { return num_left_ + 1 == peers_.size() && all_done(note_sends_); }
  bool all_drained() noexcept { return num_drained_ + 1 == peers_.size() && all_done(note_sends_); }

  /// Starts sending `text` to all others; it is kept until that is done.
  void send_text(std::string text);
  /// True when all texts have been sent.
  bool texts_sent();

  /// Ends the whole job with options().abort_exit_code; never returns.
  [[noreturn]] void abort() noexcept;

 private:
  struct Peer {
    std::optional<PostedToPeer> left;
    bool drained = false;
  };
  struct Broadcast {
    std::string text;
    std::vector<MPI_Request> requests;
  };

  void adopt_communicator();
  void count_local_ranks();
  void await(MPI_Request& request, const char* what);
  void expect_note();
  void send_note(PeerId to, const Note& note);
  static bool all_done(std::vector<MPI_Request>& requests) noexcept;

  MpiOptions options_;
  MpiLibrary library_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  PeerId rank_;
  std::int32_t size_ = 0;
  std::int32_t num_local_ranks_ = 1;
  std::atomic<bool> inside_{false};

  std::optional<TransportFault> failure_;
  std::vector<Peer> peers_;
  std::size_t num_left_ = 0;
  std::size_t num_drained_ = 0;

  Note incoming_note_;
  MPI_Request note_request_ = MPI_REQUEST_NULL;
  std::deque<Note> outgoing_notes_;  ///< stay where they are
  std::vector<MPI_Request> note_sends_;
  std::list<Broadcast> texts_;
};

}  // namespace plumb::comm
