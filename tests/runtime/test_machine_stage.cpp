// SPDX-License-Identifier: Apache-2.0
#include "cache/support/programs.hpp"
#include "plumb/runtime/interpreter.hpp"
#include "plumb/runtime/machine_stage.hpp"
#include "runtime/support/inproc_ranks.hpp"
#include "runtime/support/model_host.hpp"
#include "support/catch.hpp"

namespace plumb::test {
namespace {

constexpr double tolerance = 1e-12;

ModelOptions random_options(Dice& dice) {
  ModelOptions options;
  options.tokens = dice.roll(1, 4);
  options.width = dice.roll(2, 7);
  options.recompute = dice.roll(0, 1) == 1;
  options.head_aggregate = dice.roll(0, 3) != 0;
  options.query_stddev = dice.roll(0, 3) == 0 ? 0 : 0.7;
  return options;
}

void check_against_one_process(const Program& program, const ModelHost& host, const ModelOptions& options) {
  const OneProcess expected =
      run_in_one_process(program.depth, options, program.layout.microbatches(), !program.forward_only);
  CHECK(largest_difference(host.gradients(), expected.gradients) <= tolerance);
  // Only gradients are summed in another order.
  CHECK(host.losses() == expected.losses);
  CHECK(host.num_kept() == 0);
}

}  // namespace

TEST_CASE("fp64 gradients of any layout equal one process to 1e-12", "[runtime]") {
  Dice dice(21);
  for (int i = 0; i < 200; ++i) {
    const auto program =
        std::make_shared<const Program>(random_program(dice, {.pp = 5, .vp = 3, .sublayers = 14, .microbatches = 5}));
    const ModelOptions options = random_options(dice);
    INFO(describe(*program) << " recompute " << options.recompute << " head " << options.head_aggregate);
    ModelHost host(program->depth, options);
    interpret_single_thread(program, host.stages(), host.shape(), {.poison = Poison::always, .observer = nullptr});
    check_against_one_process(*program, host, options);
  }
}

TEST_CASE("ranks on threads and one thread give the same bits", "[runtime]") {
  Dice dice(22);
  for (int i = 0; i < 40; ++i) {
    const auto program =
        std::make_shared<const Program>(random_program(dice, {.pp = 4, .vp = 3, .sublayers = 12, .microbatches = 5}));
    const ModelOptions options = random_options(dice);
    INFO(describe(*program));
    ModelHost alone(program->depth, options);
    const auto expected = interpret_single_thread(program, alone.stages(), alone.shape());
    ModelHost host(program->depth, options);
    ExecutorOptions executor_options;
    executor_options.poison = Poison::always;
    const auto results = run_on_threads(program, host.stages(), host.shape(), executor_options);
    CHECK(host.gradients() == alone.gradients());
    CHECK(host.losses() == alone.losses());
    for (std::size_t r = 0; r < results.size(); ++r) {
      CHECK(results[r].sent == expected[r].sent);
      CHECK(results[r].received == expected[r].received);
      CHECK(results[r].num_contributions == expected[r].num_contributions);
    }
  }
}

}  // namespace plumb::test
