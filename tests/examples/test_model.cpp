// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <set>

#include "lm_fixture.hpp"
#include "plumb/kernels/depth_config.hpp"
#include "plumb/schedule/error.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::lm;
using namespace plumb::lm::test;

namespace {

std::vector<std::int64_t> some_ids(const LmConfig& config) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < config.tokens(); ++i) {
    ids.push_back((37 * i + 11) % kVocabulary);
  }
  return ids;
}

}  // namespace

TEST_CASE("an illegal size, mode or block length is refused when the model is made", "[examples]") {
  const auto refused = [](auto change) {
    LmConfig config = tiny_config();
    change(config);
    CHECK_THROWS_AS(validate(config), InputError);
    CHECK_THROWS_AS(reference_logits(config, some_ids(tiny_config())), InputError);
  };
  refused([](LmConfig& config) { config.block_sublayers = 0; });
  refused([](LmConfig& config) { config.block_sublayers = config.num_sublayers + 1; });
  refused([](LmConfig& config) { config.residual = static_cast<Residual>(7); });
  refused([](LmConfig& config) {
    config.residual = Residual::attnres_full;
    config.block_sublayers = 2;
  });
  refused([](LmConfig& config) { config.num_sublayers = 0; });
  refused([](LmConfig& config) { config.heads = 3; });
  refused([](LmConfig& config) { config.eps = 0; });
  refused([](LmConfig& config) { config.sequence = 0; });
}

TEST_CASE("no parameter is registered twice and depth adds 2 (L + 1) d of them", "[examples]") {
  const Training training{.steps = 1};
  const Case layout{.pp = 2, .vp = 2};
  const auto count = [](const Values& values) {
    std::size_t elements = 0;
    for (const auto& [name, value] : values) {
      elements += value.size();
    }
    return elements;
  };
  const LmConfig block = tiny_config();
  // The fixture throws when two stages own a parameter of the same name.
  const Values with_depth = train_interpreted(block, layout, training).parameters;
  const Values standard =
      train_interpreted(tiny_config(Storage::fp64, Residual::standard), layout, training).parameters;
  CHECK(count(with_depth) - count(standard) == static_cast<std::size_t>(num_depth_parameters(depth_config(block))));
  CHECK(num_depth_parameters(depth_config(block)) == 2 * (6 + 1) * 16);
  // Three tensors per sublayer, one for the embedding, two for the head.
  CHECK(standard.size() == 6 * 3 + 3);
}

TEST_CASE("block, full and standard residuals differ at the same seed", "[examples]") {
  const auto loss = [](Residual residual) {
    return train_interpreted(tiny_config(Storage::fp64, residual), {.pp = 2}, {}).losses.front();
  };
  const double block = loss(Residual::attnres_block);
  const double full = loss(Residual::attnres_full);
  const double standard = loss(Residual::standard);
  CHECK(std::abs(block - standard) > 1e-6);
  CHECK(std::abs(full - standard) > 1e-6);
  CHECK(std::abs(full - block) > 1e-6);
}

TEST_CASE("changing the last token leaves earlier logits bitwise equal", "[examples]") {
  const Residual residual = GENERATE(Residual::attnres_block, Residual::attnres_full, Residual::standard);
  LmConfig config = tiny_config(Storage::fp32, residual);
  config.sequences = 1;
  std::vector<std::int64_t> ids = some_ids(config);
  const Case layout{.pp = 2, .vp = 2};
  const std::vector<double> before = pipeline_logits(config, layout, ids);
  const std::vector<double> plain_before = reference_logits(config, ids);
  ids.back() = (ids.back() + 1) % kVocabulary;
  const std::vector<double> after = pipeline_logits(config, layout, ids);
  const std::vector<double> plain_after = reference_logits(config, ids);
  const auto earlier = static_cast<std::ptrdiff_t>((config.tokens() - 1) * kVocabulary);
  CHECK(std::equal(before.begin(), before.begin() + earlier, after.begin()));
  CHECK(std::equal(plain_before.begin(), plain_before.begin() + earlier, plain_after.begin()));
  CHECK_FALSE(std::equal(before.begin() + earlier, before.end(), after.begin() + earlier));
}

TEST_CASE("the two-phase machine gives the logits of the naive stack to 1e-5", "[examples]") {
  const Residual residual = GENERATE(Residual::attnres_block, Residual::attnres_full);
  const LmConfig config = tiny_config(Storage::fp32, residual);
  const std::vector<double> naive = reference_logits(config, some_ids(config));
  const std::vector<double> two_phase = pipeline_logits(config, {.pp = 2, .vp = 3}, some_ids(config));
  REQUIRE(naive.size() == two_phase.size());
  for (std::size_t i = 0; i < naive.size(); ++i) {
    REQUIRE(std::abs(naive[i] - two_phase[i]) <= 1e-5 * std::max(1.0, std::abs(naive[i])));
  }
}

TEST_CASE("training with queries kept at zero stays the plain PreNorm network", "[examples]") {
  const auto [dtype, eps, bound] =
      GENERATE(table<Storage, double, double>({{Storage::fp32, 1e-6, 1e-4}, {Storage::fp64, 1e-12, 1e-9}}));
  LmConfig config = tiny_config(dtype);
  config.query_init = QueryInit::zero;
  config.eps = eps;
  const Training training{.steps = 4, .freeze_depth = true};
  const Case layout{.pp = 2, .vp = 2};
  const Outcome block = train_interpreted(config, layout, training);
  LmConfig plain = config;
  plain.residual = Residual::standard;
  CHECK(std::abs(block.losses.front() - reference_loss(plain, layout.microbatches, {})) <= bound);
  const double trained_plain = reference_loss(plain, layout.microbatches, block.parameters);
  CHECK(std::abs(reference_loss(config, layout.microbatches, block.parameters) - trained_plain) <= bound);
  CHECK(std::abs(trained_plain - block.losses.front()) > 0.01);
}

TEST_CASE("one batch is overfitted to a loss below 0.5 in 200 steps", "[examples]") {
  LmConfig config = tiny_config(Storage::fp32);
  config.num_sublayers = 4;
  config.block_sublayers = 2;
  config.width = 32;
  config.sequence = 32;
  config.sequences = 1;
  config.query_init = QueryInit::zero;
  const Outcome outcome =
      train_interpreted(config, {.pp = 2, .microbatches = 1}, {.steps = 200, .learning_rate = 5e-3, .one_batch = true});
  CHECK(outcome.losses.front() > 4);
  CHECK(outcome.losses.back() < 0.5);
}
