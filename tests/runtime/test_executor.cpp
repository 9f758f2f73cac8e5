// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "cache/support/programs.hpp"
#include "plumb/cache/volume.hpp"
#include "plumb/runtime/executor.hpp"
#include "plumb/runtime/interpreter.hpp"
#include "runtime/support/inproc_ranks.hpp"
#include "runtime/support/integer_host.hpp"
#include "support/catch.hpp"

namespace plumb::test {
TEST_CASE("one thread gives an integer model the gradients of one process, bit for bit", "[runtime]") {
  Dice dice(11);
  for (int i = 0; i < 150; ++i) {
    const auto program = share(random_program(dice, {.pp = 5, .vp = 3, .sublayers = 14, .microbatches = 6}));
    INFO(describe(*program));
    const IntegerModel model(program->depth, 3, 4, static_cast<std::uint32_t>(i));
    IntegerHost host(model, program->depth, program->layout.microbatches(), Storage::fp64);
    const auto results =
        interpret_single_thread(program, host.stages(), host.shape(), {.poison = Poison::always, .observer = nullptr});
    CHECK(host.gradients() == expected_for(*program, model));
    std::uint64_t forward_bytes = 0;
    std::uint64_t backward_bytes = 0;
    for (const StepResult& result : results) {
      forward_bytes += result.received.forward_bytes;
      backward_bytes += result.received.backward_bytes;
    }
    const auto units = static_cast<std::uint64_t>(
        expected_units(program->layout, program->depth, program->routing.policy) * program->layout.microbatches());
    CHECK(forward_bytes == units * host.shape().value_bytes());
    CHECK(backward_bytes == (program->forward_only ? 0 : units * host.shape().gradient_bytes()));
  }
}

TEST_CASE("ranks on threads give an integer model the gradients of one process, bit for bit", "[runtime]") {
  Dice dice(12);
  for (int i = 0; i < 60; ++i) {
    const auto program = share(random_program(dice, {.pp = 5, .vp = 3, .sublayers = 14, .microbatches = 6}));
    INFO(describe(*program));
    const IntegerModel model(program->depth, 3, 4, static_cast<std::uint32_t>(i));
    IntegerHost host(model, program->depth, program->layout.microbatches(), Storage::fp64);
    ExecutorOptions options;
    options.poison = Poison::always;
    options.verify_messages = i % 2 == 0;
    const auto results = run_on_threads(program, host.stages(), host.shape(), options);
    CHECK(host.gradients() == expected_for(*program, model));
  }
}

}  // namespace plumb::test
