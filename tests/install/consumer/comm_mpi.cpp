// SPDX-License-Identifier: Apache-2.0
// A user of `comm_mpi` alone: started without mpirun, a program is its own world of one rank.
#include <plumb/comm/mpi.hpp>

int main() {
  plumb::MpiWorld world;
  return world.transport().rank().value == 0 && world.transport().size() == 1 ? 0 : 1;
}
