// SPDX-License-Identifier: Apache-2.0
//
// Started by mpirun: as many pipeline ranks as processes. Each compares its own part with the one-thread interpreter.
#include "lm_fixture.hpp"
#include "plumb/comm/mpi.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::lm;
using namespace plumb::lm::test;

namespace {

void check_own_part(const Outcome& mine, const Outcome& expected) {
  CHECK(mine.losses == expected.losses);
  for (const auto& [name, values] : mine.first_gradients) {
    CHECK(values == expected.first_gradients.at(name));
  }
  for (const auto& [name, values] : mine.parameters) {
    CHECK(values == expected.parameters.at(name));
  }
}

}  // namespace

// MPI starts once per process, so there is one case.
TEST_CASE("training over MPI gives the bits of the one-thread interpreter", "[examples]") {
  MpiWorld world;
  const RankLinks links{RankId(world.transport().rank().value), &world.transport(), &world.control()};
  const int pp = world.transport().size();
  const Training training{.steps = 2};
  for (const Residual residual : {Residual::attnres_block, Residual::attnres_full, Residual::standard}) {
    for (const Policy policy : {Policy::cached, Policy::direct, Policy::naive}) {
      const LmConfig config = tiny_config(Storage::fp32, residual);
      const Case layout{.pp = pp, .vp = 2, .microbatches = 4, .policy = policy};
      check_own_part(train_rank(config, layout, training, links), train_interpreted(config, layout, training));
      // A standard residual has one policy.
      if (residual == Residual::standard) {
        break;
      }
    }
  }
  const Case short_layout{.pp = pp, .vp = 2, .microbatches = 4, .policy = Policy::direct};
  for (const Residual residual : {Residual::attnres_block, Residual::standard}) {
    const LmConfig config = tiny_config(Storage::bf16, residual);
    check_own_part(train_rank(config, short_layout, training, links),
                   train_interpreted(config, short_layout, training));
  }
  for (const ScheduleKind kind : all_schedule_kinds()) {
    CAPTURE(to_string(kind));
    const bool one_stage = kind == ScheduleKind::one_f_one_b || kind == ScheduleKind::gpipe;
    const Case layout{.pp = pp, .vp = one_stage ? 1 : 2, .microbatches = 2 * pp, .schedule = kind};
    const LmConfig config = tiny_config(Storage::fp32);
    check_own_part(train_rank(config, layout, {}, links), train_interpreted(config, layout, {}));
  }
}
