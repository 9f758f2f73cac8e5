// SPDX-License-Identifier: Apache-2.0
//
// Blocks, partial sums and what lies between layers in bf16 or fp16; parameters, arithmetic and gradients in fp32.
#include <cmath>
#include <vector>

#include "lm_fixture.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::lm;
using namespace plumb::lm::test;

namespace {

// Of gradients that differ by the order of a few fp32 additions; nothing of a gradient is rounded to the short format.
constexpr double order_of_additions = 1e-5;

std::vector<Case> some_layouts() {
  return {{.pp = 4, .vp = 1},
          {.pp = 2, .vp = 2, .policy = Policy::direct, .recompute = true},
          {.pp = 2, .vp = 3, .policy = Policy::naive, .cuts = {1, 1, 3, 4, 5, 6}},
          {.pp = 2, .vp = 2, .policy = Policy::relay, .schedule = ScheduleKind::zb_v}};
}

}  // namespace

TEST_CASE("in a short format every layout gives the loss and the gradients of one process", "[examples]") {
  const Storage dtype = GENERATE(Storage::bf16, Storage::fp16);
  const Residual residual = GENERATE(Residual::attnres_block, Residual::attnres_full, Residual::standard);
  const LmConfig config = tiny_config(dtype, residual);
  const Outcome one = train_interpreted(config, {}, {});
  for (const Case& layout : some_layouts()) {
    CAPTURE(to_string(dtype), to_string(residual), layout.pp, layout.vp, to_string(layout.policy));
    const Outcome other = train_interpreted(config, layout, {});
    CHECK(other.losses == one.losses);
    CHECK(largest_difference(other.first_gradients, one.first_gradients) <= order_of_additions);
  }
}

TEST_CASE("threads train in bf16 with the bits of the interpreter", "[examples]") {
  const Residual residual = GENERATE(Residual::attnres_block, Residual::standard);
  const LmConfig config = tiny_config(Storage::bf16, residual);
  const Case layout{.pp = 2, .vp = 2};
  const Training training{.steps = 3};
  const Outcome threads = train_threads(config, layout, training);
  const Outcome interpreted = train_interpreted(config, layout, training);
  CHECK(threads.losses == interpreted.losses);
  CHECK(threads.first_gradients == interpreted.first_gradients);
  CHECK(threads.parameters == interpreted.parameters);
}

TEST_CASE("the loss falls in bf16 as in fp32, within a hundredth", "[examples]") {
  const Residual residual = GENERATE(Residual::attnres_block, Residual::standard);
  const Case layout{.pp = 2, .vp = 2};
  const Training training{.steps = 40, .one_batch = true};
  const Outcome exact = train_threads(tiny_config(Storage::fp32, residual), layout, training);
  const Outcome rounded = train_threads(tiny_config(Storage::bf16, residual), layout, training);
  for (std::size_t step = 0; step < exact.losses.size(); ++step) {
    CAPTURE(to_string(residual), step, exact.losses[step], rounded.losses[step]);
    CHECK(std::abs(rounded.losses[step] - exact.losses[step]) <= 0.01 * exact.losses[step]);
  }
  CHECK(rounded.losses.back() < 0.7 * rounded.losses.front());
  CHECK(rounded.losses != exact.losses);
}

TEST_CASE("in a short format the pipeline is plain torch that rounds what is stored", "[examples]") {
  const auto [dtype, loss, gradient] =
      GENERATE(table<Storage, double, double>({{Storage::bf16, 2e-4, 5e-2}, {Storage::fp16, 2e-5, 1e-2}}));
  const LmConfig config = tiny_config(dtype);
  const Outcome expected = train_reference(config, 4, {});
  const Outcome got = train_interpreted(config, {}, {});
  CHECK(std::abs(got.losses.front() - expected.losses.front()) <= loss * expected.losses.front());
  CHECK(largest_difference(got.first_gradients, expected.first_gradients) <= gradient);
}
