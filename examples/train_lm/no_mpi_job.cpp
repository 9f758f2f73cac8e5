// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/error.hpp"
#include "train_lm/mpi_job.hpp"

namespace plumb::lm {

std::unique_ptr<MpiJob> MpiJob::join() { throw InputError("--ranks mpi: this build has no MPI; use --ranks inproc"); }

}  // namespace plumb::lm
