// SPDX-License-Identifier: Apache-2.0
#include "job.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb::rehearsal {

std::unique_ptr<Job> Job::join() { throw InputError("--ranks mpi: this build has no MPI; use --ranks inproc"); }

}  // namespace plumb::rehearsal
