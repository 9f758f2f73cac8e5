// SPDX-License-Identifier: Apache-2.0
#include "job.hpp"
#include "plumb/comm/mpi.hpp"

namespace plumb::rehearsal {
namespace {

class RealJob final : public Job {
 public:
  Transport& transport() override { return world_.transport(); }
  ControlPlane& control() override { return world_.control(); }

 private:
  MpiWorld world_;
};

}  // namespace

std::unique_ptr<Job> Job::join() { return std::make_unique<RealJob>(); }

}  // namespace plumb::rehearsal
