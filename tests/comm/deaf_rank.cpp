// SPDX-License-Identifier: Apache-2.0
// A job whose rank 1 never listens again while rank 0 fails. The job must end soon, with the exit code asked for and
// after rank 0 has said why; without the abort rank 0 would wait in MPI_Finalize until rank 1 is done.
#include <chrono>
#include <cstdio>
#include <thread>

#include "plumb/comm/mpi.hpp"

int main() {
  try {
    plumb::MpiWorld world({.fail_limit = std::chrono::milliseconds(300), .abort_exit_code = 23});
    world.control().barrier(std::chrono::seconds(20));
    if (world.transport().rank().value == 1) std::this_thread::sleep_for(std::chrono::minutes(5));
    world.transport().fail("out of paper");
    std::puts("rank 0 has failed");
    std::fflush(stdout);
  } catch (const std::exception& error) {
    std::puts(error.what());
  }
  return 0;
}
