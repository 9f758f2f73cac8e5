// SPDX-License-Identifier: Apache-2.0
#include "plumb/comm/mpi.hpp"

#include "mpi_control.hpp"
#include "mpi_job.hpp"
#include "mpi_transport.hpp"

namespace plumb {

struct MpiWorld::Parts {
  explicit Parts(const MpiOptions& options) : job(options), transport(job), control(job) {}

  comm::MpiJob job;
  comm::MpiTransport transport;
  comm::MpiControl control;
};

MpiWorld::MpiWorld(const MpiOptions& options) : parts_(std::make_unique<Parts>(options)) {}

MpiWorld::~MpiWorld() {
  if (!parts_->transport.leave()) parts_->job.abort();
}

Transport& MpiWorld::transport() noexcept { return parts_->transport; }

ControlPlane& MpiWorld::control() noexcept { return parts_->control; }

}  // namespace plumb
