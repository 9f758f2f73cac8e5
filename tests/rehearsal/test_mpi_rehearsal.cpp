// SPDX-License-Identifier: Apache-2.0
//
// Rehearsals between processes. Run under mpirun with any number of ranks; every process makes the same plans.
#include <chrono>
#include <memory>

#include "plumb/cache/lower.hpp"
#include "plumb/rehearsal/launch.hpp"
#include "plumb/rehearsal/report.hpp"
#include "plumb/runtime/run_error.hpp"
#include "plumb/schedule/named.hpp"
#include "support/catch.hpp"
#include "support/mpi_world.hpp"

namespace plumb {
namespace {

using namespace std::chrono_literals;

using test::World;

RehearsalPlan plan_for(int num_ranks, Policy policy, ScheduleKind kind) {
  const SlotShape shape{1, 4096, Storage::fp32};
  const UnitBytes bytes{16384, 16384, 16384};
  const Layout layout(num_ranks, kind == ScheduleKind::one_f_one_b ? 1 : 2, 2 * num_ranks, placement_of(kind));
  const int chunks = layout.num_chunks();
  const auto program = [&](Policy routing) {
    const DepthMap depth(2 * chunks, 2, DepthMap::even_cuts(2 * chunks, 2 * chunks, chunks),
                         routing == Policy::standard ? Residual::standard : Residual::attnres_block);
    ScheduleRequest request;
    request.kind = kind;
    return std::make_shared<const Program>(lower(make_schedule(request, layout), depth, routing));
  };
  RehearsalPlan plan{
      .program = program(policy),
      .baseline = program(Policy::standard),
      .costs = CostModel(action_times(500us, 500us, 500us), link_from_unit_time(50us, 50us, bytes), bytes),
      .shape = shape};
  plan.steps = 2;
  plan.wait_limit = 30s;
  return plan;
}

TEST_CASE("processes rehearse every policy without a mismatch and with the bytes of the formula", "[rehearsal]") {
  const World world;
  for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_v}) {
    for (const Policy policy : {Policy::naive, Policy::relay, Policy::cached, Policy::direct}) {
      INFO(to_string(kind) << " " << to_string(policy));
      const RehearsalPlan plan = plan_for(world.size(), policy, kind);
      LaunchOptions options;
      options.emulate_links = policy != Policy::direct;
      const auto outcomes = rehearse_on_job(plan, world.rank(), world.mpi->transport(), world.mpi->control(), options);
      const RehearsalReport report = make_report(plan, outcomes);
      CHECK(report.first_mismatch == "");
      CHECK(report.num_mismatches == 0);
      CHECK(report.wire_bytes == report.formula_bytes);
      CHECK(report.simulated_bytes == report.formula_bytes);
    }
  }
}

TEST_CASE("a rank that hangs is named by the process that waits for it", "[rehearsal]") {
  const World world;
  if (world.size() < 2) return;
  RehearsalPlan plan = plan_for(world.size(), Policy::cached, ScheduleKind::one_f_one_b);
  plan.wait_limit = 2s;
  LaunchOptions options;
  options.prepare = [](RankId, Play& play) {
    play.hangs_at = Compute{Op::forward, ChunkId(1), Microbatch(1)};
    play.hang = 5s;
  };
  try {
    rehearse_on_job(plan, world.rank(), world.mpi->transport(), world.mpi->control(), options);
    FAIL("a stall must throw");
  } catch (const StallError& error) {
    CHECK_THAT(error.what(),
               Catch::Contains("the first rank whose next action had its inputs ready is rank 1: in 1F1"));
  } catch (const PeerError&) {
    SUCCEED("another rank gave up first");
  }
}

}  // namespace
}  // namespace plumb
