// SPDX-License-Identifier: Apache-2.0
#include "train_lm/mpi_job.hpp"

#include "plumb/comm/mpi.hpp"

namespace plumb::lm {

namespace {

class RealJob final : public MpiJob {
 public:
  RankLinks links() override {
    return {RankId(world_.transport().rank().value), &world_.transport(), &world_.control()};
  }

 private:
  MpiWorld world_;
};

}  // namespace

std::unique_ptr<MpiJob> MpiJob::join() { return std::make_unique<RealJob>(); }

}  // namespace plumb::lm
