// SPDX-License-Identifier: Apache-2.0
// mpi_control.hpp: ControlPlane over MPI: every rank sends its text to every other.
//
// Point to point and not a collective call of MPI: that could neither be given up nor say who is missing. Private to
// comm.
#pragma once

#include <string>
#include <vector>

#include "backoff.hpp"
#include "mpi_job.hpp"

namespace plumb::comm {

class MpiControl final : public ControlPlane {
 public:
  explicit MpiControl(MpiJob& job) : job_(job), backoff_(job.num_local_ranks(), looking_policy) {}

  PeerId rank() const noexcept override { return job_.rank(); }
  std::int32_t size() const noexcept override { return job_.size(); }
  std::vector<std::string> exchange(std::string mine, std::chrono::nanoseconds limit) override;
  void barrier(std::chrono::nanoseconds limit) override { exchange({}, limit); }

 private:
  /// A text on its way. Kept here and not on the stack: a failure may end the call while MPI still writes into it.
  struct Incoming {
    std::string text;
    MPI_Request request = MPI_REQUEST_NULL;
    bool started = false;
  };

  bool has_come(PeerId from);

  MpiJob& job_;
  Backoff backoff_;
  std::vector<Incoming> incoming_;  ///< by peer
};

}  // namespace plumb::comm
