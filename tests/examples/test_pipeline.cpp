// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>

#include "lm_fixture.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::lm;
using namespace plumb::lm::test;

namespace {

Case random_case(std::mt19937& random, int sublayers) {
  const auto draw = [&random](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Case layout;
  layout.pp = draw(1, 4);
  layout.vp = draw(1, 3);
  layout.placement = draw(0, 2) == 0 ? Placement::vee : Placement::loop;
  layout.breadth_first = layout.placement == Placement::vee || draw(0, 2) == 0;
  layout.microbatches = layout.pp * draw(1, 2);
  layout.policy =
      std::vector{Policy::naive, Policy::relay, Policy::cached, Policy::direct}[static_cast<std::size_t>(draw(0, 3))];
  layout.recompute = draw(0, 1) == 1;
  // Any cuts: inside blocks, empty chunks anywhere.
  for (int chunk = 1; chunk < layout.pp * layout.vp; ++chunk) {
    layout.cuts.push_back(draw(0, sublayers));
  }
  layout.cuts.push_back(sublayers);
  std::sort(layout.cuts.begin(), layout.cuts.end());
  return layout;
}

void check_same_bits(const Outcome& a, const Outcome& b) {
  CHECK(a.losses == b.losses);
  CHECK(a.first_gradients == b.first_gradients);
  CHECK(a.parameters == b.parameters);
}

}  // namespace

TEST_CASE("gradients of random layouts equal plain torch to 1e-12 in fp64", "[examples]") {
  std::mt19937 random(20240);
  for (int trial = 0; trial < 24; ++trial) {
    LmConfig config = tiny_config(Storage::fp64);
    config.block_sublayers = trial % 6 + 1;
    config.residual = trial % 5 == 4 ? Residual::standard : Residual::attnres_block;
    const Case layout = random_case(random, config.num_sublayers);
    CAPTURE(trial, layout.pp, layout.vp, layout.microbatches, layout.cuts, layout.recompute, config.block_sublayers,
            static_cast<int>(layout.policy));
    const Outcome expected = train_reference(config, layout.microbatches, {});
    const Outcome got = train_interpreted(config, layout, {});
    CHECK(std::abs(got.losses.front() - expected.losses.front()) <= 1e-12 * expected.losses.front());
    CHECK(largest_difference(got.first_gradients, expected.first_gradients) <= 1e-12);
  }
}

TEST_CASE("the loss follows plain torch from the first step on", "[examples]") {
  const Residual residual = GENERATE(Residual::attnres_block, Residual::attnres_full, Residual::standard);
  const auto [dtype, first, later] =
      GENERATE(table<Storage, double, double>({{Storage::fp32, 1e-6, 1e-4}, {Storage::fp64, 1e-14, 1e-9}}));
  const LmConfig config = tiny_config(dtype, residual);
  const Case layout{.pp = 2, .vp = 2};
  const Training training{.steps = 20};
  const Outcome expected = train_reference(config, layout.microbatches, training);
  const Outcome got = train_threads(config, layout, training);
  CHECK(std::abs(got.losses.front() - expected.losses.front()) <= first * expected.losses.front());
  REQUIRE(got.losses.size() == expected.losses.size());
  for (std::size_t step = 0; step < got.losses.size(); ++step) {
    REQUIRE(std::abs(got.losses[step] - expected.losses[step]) <= later);
  }
  CHECK(expected.losses.back() < expected.losses.front());
}

TEST_CASE("threads and the one-thread interpreter give the same bits", "[examples]") {
  const auto [residual, pp, vp] = GENERATE(table<Residual, int, int>({{Residual::attnres_block, 4, 2},
                                                                      {Residual::attnres_block, 2, 1},
                                                                      {Residual::attnres_full, 2, 2},
                                                                      {Residual::standard, 3, 2}}));
  const LmConfig config = tiny_config(Storage::fp32, residual);
  const Case layout{.pp = pp, .vp = vp, .microbatches = 2 * pp};
  const Training training{.steps = 3};
  check_same_bits(train_threads(config, layout, training), train_interpreted(config, layout, training));
}

TEST_CASE("recomputation changes no bit", "[examples]") {
  const Residual residual = GENERATE(Residual::attnres_block, Residual::attnres_full, Residual::standard);
  const LmConfig config = tiny_config(Storage::fp32, residual);
  Case layout{.pp = 2, .vp = 2};
  const Training training{.steps = 2};
  const Outcome kept = train_interpreted(config, layout, training);
  layout.recompute = true;
  check_same_bits(train_interpreted(config, layout, training), kept);
}

TEST_CASE("the first loss is the same bits under every layout and policy", "[examples]") {
  const LmConfig config = tiny_config(Storage::fp32);
  const double expected = train_interpreted(config, {}, {}).losses.front();
  for (const Policy policy : {Policy::naive, Policy::relay, Policy::cached, Policy::direct}) {
    CHECK(train_interpreted(config, {.pp = 4, .vp = 1, .policy = policy}, {}).losses.front() == expected);
    CHECK(train_interpreted(config, {.pp = 2, .vp = 3, .policy = policy}, {}).losses.front() == expected);
  }
}

TEST_CASE("policies change a gradient by no more than the order of its additions", "[examples]") {
  const LmConfig config = tiny_config(Storage::fp64);
  std::mt19937 random(7);
  for (int trial = 0; trial < 8; ++trial) {
    Case layout = random_case(random, config.num_sublayers);
    layout.policy = Policy::cached;
    CAPTURE(trial, layout.pp, layout.vp, layout.microbatches, layout.cuts);
    const Outcome cached = train_interpreted(config, layout, {});
    for (const Policy policy : {Policy::naive, Policy::relay, Policy::direct}) {
      layout.policy = policy;
      const Outcome other = train_interpreted(config, layout, {});
      CHECK(other.losses == cached.losses);
      CHECK(largest_difference(other.first_gradients, cached.first_gradients) <= 1e-13);
      // relay and cached share their trees, so they add in the same order.
      CHECK((policy != Policy::relay || other.first_gradients == cached.first_gradients));
    }
  }
}
