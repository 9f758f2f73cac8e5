// SPDX-License-Identifier: Apache-2.0
//
// Started by mpirun: as many pipeline ranks as processes. Each compares its own part with the one-thread interpreter.
#include "lm_fixture.hpp"
#include "plumb/comm/mpi.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::lm;
using namespace plumb::lm::test;

TEST_CASE("training over MPI gives the bits of the one-thread interpreter", "[examples]") {
  MpiWorld world;
  const RankLinks links{RankId(world.transport().rank().value), &world.transport(), &world.control()};
  for (const Residual residual : {Residual::attnres_block, Residual::attnres_full, Residual::standard}) {
    for (const Policy policy : {Policy::cached, Policy::direct, Policy::naive}) {
      const LmConfig config = tiny_config(Storage::fp32, residual);
      const Case layout{.pp = world.transport().size(), .vp = 2, .microbatches = 4, .policy = policy};
      const Training training{.steps = 2};
      const Outcome mine = train_rank(config, layout, training, links);
      const Outcome expected = train_interpreted(config, layout, training);
      CHECK(mine.losses == expected.losses);
      for (const auto& [name, values] : mine.first_gradients) {
        CHECK(values == expected.first_gradients.at(name));
      }
      for (const auto& [name, values] : mine.parameters) {
        CHECK(values == expected.parameters.at(name));
      }
      // A standard residual has one policy.
      if (residual == Residual::standard) {
        break;
      }
    }
  }
}
