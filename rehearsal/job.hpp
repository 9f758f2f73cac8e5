// SPDX-License-Identifier: Apache-2.0
//
// job.hpp (private): the job of processes that this process belongs to, if the build has MPI.
#pragma once

#include <memory>

#include "plumb/comm/control.hpp"
#include "plumb/comm/transport.hpp"

namespace plumb::rehearsal {

class Job {
 public:
  virtual ~Job() = default;
  virtual Transport& transport() = 0;
  virtual ControlPlane& control() = 0;

  // Collective. Throws TransportError; InputError in a build without MPI.
  static std::unique_ptr<Job> join();
};

}  // namespace plumb::rehearsal
