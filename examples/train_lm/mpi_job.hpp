// SPDX-License-Identifier: Apache-2.0
//
// mpi_job.hpp: this process's place in an MPI job, in a build with MPI or without.
//
// Two sources implement it, one of which is linked. Ownership: destroying the job leaves MPI, which is collective.
// Threads: one.
#pragma once

#include <memory>

#include "train_lm/rank_links.hpp"

namespace plumb::lm {

class MpiJob {
 public:
  virtual ~MpiJob() = default;
  virtual RankLinks links() = 0;

  // Collective. Throws TransportError, or InputError in a build without MPI.
  static std::unique_ptr<MpiJob> join();
};

}  // namespace plumb::lm
