// SPDX-License-Identifier: Apache-2.0
#include "cache/support/programs.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/generators.hpp"
#include "runtime/support/inproc_ranks.hpp"
#include "runtime/support/model_host.hpp"
#include "support/catch.hpp"

namespace plumb::test {
namespace {

std::shared_ptr<const Program> program_of(int microbatches, bool forward_only) {
  const Layout layout(3, 2, microbatches);
  const DepthMap depth(12, 3, {1, 4, 6, 8, 11, 12});
  return std::make_shared<const Program>(lower(interleaved(layout, 3, forward_only), depth, Policy::cached));
}

}  // namespace

TEST_CASE("an executor trains, evaluates and trains again with another number of microbatches", "[runtime]") {
  const auto few = program_of(3, false);
  const auto evaluation = program_of(9, true);
  const auto many = program_of(6, false);
  const ModelOptions model;
  ModelHost host(few->depth, model);
  std::vector<std::map<std::string, Row>> gradients;
  std::vector<std::size_t> largest(3);
  on_all_ranks(3, [&](const RankPlace& place) {
    Executor executor(place.rank, host.stages(), &place.transport, &place.control, {.poison = Poison::always});
    const auto step = [&](ProgramHandle handle) {
      executor.run(handle);
      place.control.barrier(std::chrono::seconds(60));
      if (place.rank.value == 0) {
        gradients.push_back(host.gradients());
        host.clear();
      }
      place.control.barrier(std::chrono::seconds(60));
    };
    const ProgramHandle train_few = executor.prepare(few, host.shape());
    step(train_few);
    const ProgramHandle evaluate = executor.prepare(evaluation, host.shape());
    step(evaluate);
    const ProgramHandle train_many = executor.prepare(many, host.shape());
    step(train_many);
    const std::size_t grown = executor.store().allocated_bytes();
    for (int i = 0; i < 3; ++i) {
      step(train_few);
      step(evaluate);
      step(train_many);
    }
    executor.discard(evaluate);
    thrown_by<std::logic_error>([&] { executor.run(evaluate); });
    step(executor.prepare(evaluation, host.shape()));
    if (executor.store().allocated_bytes() == grown) largest[place.rank.index()] = grown;
  });
  for (const std::size_t bytes : largest)
    CHECK(bytes > 0);
  const auto of_few = run_in_one_process(few->depth, model, 3, true).gradients;
  const auto of_many = run_in_one_process(few->depth, model, 6, true).gradients;
  REQUIRE(gradients.size() == 13);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (i % 3 == 0 && i < 12) CHECK(largest_difference(gradients[i], of_few) <= 1e-12);
    if (i % 3 == 2) CHECK(largest_difference(gradients[i], of_many) <= 1e-12);
    if (i % 3 == 1 || i == 12) {
      for (const auto& [name, gradient] : gradients[i])
        CHECK(gradient == Row(gradient.size(), 0.0));
    }
  }
}

}  // namespace plumb::test
