// SPDX-License-Identifier: Apache-2.0
// mpi.hpp: ranks are MPI processes.
//
// One MpiWorld per process brings MPI up if nobody has, takes a communicator of its own, and ends MPI only if it began
// it. Messages are non-blocking MPI calls, one per segment, with a constant tag per lane, so MPI's own order is the
// channel's order. MPI moves large messages only while both sides call it: keep calling progress() or wait().
// A failed rank tells the others by a note; then all drain what is under way, so MPI ends in order. Only when a rank
// does not answer within the limits is the job aborted (MPI_Abort), at the end of the MpiWorld: report the error first.
// Threads: MPI_THREAD_SERIALIZED; transport and control plane together count as one: never two threads at once.
#pragma once

#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>

#include "plumb/comm/control.hpp"
#include "plumb/comm/transport.hpp"

namespace plumb {

struct MpiOptions {
  /// MPI_Comm_c2f of the ranks to use, which keeps mpi.h out of this header; without it all ranks of the job.
  std::optional<int> communicator_handle = std::nullopt;
  /// Larger segments travel in pieces of this size; the same on all ranks; at most 2^31-1.
  std::size_t max_piece_bytes = std::size_t{1} << 30;
  /// Receives are posted at once: whoever compares programs before the first byte has excluded a wrong length. For
  /// peers that do not, e.g. 1024: a segment of this size or more is received only after its true length is known,
  /// since Open MPI 4.1 writes a too long message beyond the posted memory where it moves it by RDMA (cross-memory
  /// attach, tcp); what is small enough to come with its envelope is cut and reported. Costs the early post.
  std::size_t probe_from_bytes = std::numeric_limits<std::size_t>::max();
  /// How long the constructor waits for the other ranks.
  std::chrono::nanoseconds start_limit = std::chrono::seconds(60);
  /// How long fail(), and once more the destructor, wait until every rank has heard of the failure and let go.
  std::chrono::nanoseconds fail_limit = std::chrono::seconds(4);
  /// How long a rank that is done waits in the destructor for the others to be done.
  std::chrono::nanoseconds leave_limit = std::chrono::minutes(10);
  /// What the process ends with when the job has to be aborted.
  int abort_exit_code = 3;
};

class MpiWorld {
 public:
  /// Collective over the communicator. Throws TransportError (net, timeout), std::invalid_argument on an option out
  /// of range, or when MPI is up with a thread level below MPI_THREAD_SERIALIZED, or is already finalised.
  explicit MpiWorld(const MpiOptions& options = {});
  /// Collective: returns when every rank has left, or aborts the job as described above.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  Transport& transport() noexcept;
  ControlPlane& control() noexcept;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace plumb
