// SPDX-License-Identifier: Apache-2.0
#include "cache/support/programs.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/cache/volume.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/simulate.hpp"
#include "runtime/support/inproc_ranks.hpp"
#include "runtime/support/integer_host.hpp"
#include "runtime/support/program_faults.hpp"
#include "support/catch.hpp"

namespace plumb::test {
namespace {

// Bytes of one step by three paths that share no code.
struct ThreeCounts {
  std::uint64_t formula = 0;
  std::uint64_t simulated = 0;
  std::uint64_t wire = 0;
  bool agree() const { return formula == simulated && simulated == wire; }
};

ThreeCounts count(const Program& program) {
  const IntegerModel model(program.depth, 2, 4);
  IntegerHost host(model, program.depth, program.layout.microbatches(), Storage::fp32);
  ThreeCounts counts;
  const auto units = static_cast<std::uint64_t>(expected_units(program.layout, program.depth, program.routing.policy));
  const std::uint64_t bytes_per_unit =
      host.shape().value_bytes() + (program.forward_only ? 0 : host.shape().gradient_bytes());
  counts.formula = units * static_cast<std::uint64_t>(program.layout.microbatches()) * bytes_per_unit;
  const UnitBytes bytes = unit_bytes(host.shape().tokens, host.shape().width, 4, GradientWire::fp32);
  const SimTime unit(1000);
  const CostModel costs(action_times(unit, unit, unit), link_from_unit_time(SimTime{0}, unit, bytes), bytes);
  counts.simulated = static_cast<std::uint64_t>(make_report(program, costs, simulate(program, costs)).bytes_per_step);
  for (const StepResult& result :
       run_on_threads(std::make_shared<const Program>(program), host.stages(), host.shape())) {
    counts.wire += result.received.total_bytes();
  }
  return counts;
}

}  // namespace

TEST_CASE("formula, simulation and wire count the same bytes", "[runtime]") {
  Dice dice(31);
  for (int i = 0; i < 40; ++i) {
    const Program program = random_program(dice, {.pp = 5, .vp = 3, .sublayers = 12, .microbatches = 6});
    INFO(describe(program));
    CHECK(count(program).agree());
  }
}

TEST_CASE("a block dropped from a run's routing breaks the equality", "[runtime]") {
  // Two blocks per chunk, so that a message that loses one is still a message.
  const Layout layout(3, 2, 6);
  const DepthMap depth(24, 2, DepthMap::even_cuts(24, 24, 6));
  for (const Policy policy : block_policies) {
    INFO(to_string(policy));
    Program program = lower(interleaved(layout, 3, true), depth, policy);
    REQUIRE(count(program).agree());
    drop_block(program);
    const ThreeCounts counts = count(program);
    CHECK(counts.simulated == counts.wire);
    CHECK(counts.formula > counts.wire);
  }
}

}  // namespace plumb::test
