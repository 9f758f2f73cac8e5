// SPDX-License-Identifier: Apache-2.0
// mpi_world.hpp: an MpiWorld per test case. MPI itself starts once per process and ends with it.
#pragma once

#include <memory>

#include <mpi.h>

#include "plumb/comm/mpi.hpp"
#include "plumb/schedule/ids.hpp"

namespace plumb::test {

struct MpiProcess {
  MpiProcess() {
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  }
  ~MpiProcess() { MPI_Finalize(); }
};

struct World {
  World() {
    static const MpiProcess process;
    mpi = std::make_unique<MpiWorld>();
  }
  int size() const { return mpi->transport().size(); }
  RankId rank() const { return RankId(mpi->transport().rank().value); }
  std::unique_ptr<MpiWorld> mpi;
};

}  // namespace plumb::test
