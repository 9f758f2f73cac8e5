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

// Any cuts: inside blocks, empty chunks anywhere.
std::vector<int> random_cuts(std::mt19937& random, int sublayers, int chunks) {
  std::vector<int> cuts;
  for (int chunk = 1; chunk < chunks; ++chunk) {
    cuts.push_back(std::uniform_int_distribution<int>(0, sublayers)(random));
  }
  cuts.push_back(sublayers);
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

Case random_case(std::mt19937& random, int sublayers) {
  const auto draw = [&random](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Case layout;
  layout.pp = draw(1, 4);
  layout.vp = draw(1, 3);
  if (draw(0, 2) == 0) {
    layout.schedule = ScheduleKind::looped_bfs;
    layout.placement = Placement::vee;
  } else if (draw(0, 2) == 0) {
    layout.schedule = ScheduleKind::looped_bfs;
  }
  layout.microbatches = layout.pp * draw(1, 2);
  layout.policy =
      std::vector{Policy::naive, Policy::relay, Policy::cached, Policy::direct}[static_cast<std::size_t>(draw(0, 3))];
  layout.recompute = draw(0, 1) == 1;
  layout.cuts = random_cuts(random, sublayers, layout.pp * layout.vp);
  return layout;
}

std::vector<ScheduleKind> all_kinds() { return {all_schedule_kinds().begin(), all_schedule_kinds().end()}; }

// P ranks, 2 virtual stages where the schedule has them, 2 P microbatches.
Case case_of(ScheduleKind kind, int pp) {
  Case layout{.pp = pp, .vp = 2, .microbatches = 2 * pp, .schedule = kind};
  if (kind == ScheduleKind::one_f_one_b || kind == ScheduleKind::gpipe) {
    layout.vp = 1;
  }
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

TEST_CASE("gradients under every schedule equal plain torch to 1e-12 in fp64", "[examples]") {
  const ScheduleKind kind = GENERATE(from_range(all_kinds()));
  std::mt19937 random(400 + static_cast<unsigned>(kind));
  for (int trial = 0; trial < 6; ++trial) {
    const Residual residual =
        std::vector{Residual::attnres_block, Residual::attnres_full, Residual::standard}[trial % 3U];
    const LmConfig config = tiny_config(Storage::fp64, residual);
    Case layout = case_of(kind, trial % 3 + 1);
    layout.policy = std::vector{Policy::naive, Policy::relay, Policy::cached, Policy::direct}[(trial + 1) % 4U];
    layout.recompute = trial >= 3;
    layout.cuts = random_cuts(random, config.num_sublayers, layout.pp * layout.vp);
    CAPTURE(to_string(kind), trial, layout.pp, layout.cuts, layout.recompute, to_string(residual));
    const Outcome expected = train_reference(config, layout.microbatches, {});
    const Outcome got = train_interpreted(config, layout, {});
    CHECK(std::abs(got.losses.front() - expected.losses.front()) <= 1e-12 * expected.losses.front());
    CHECK(largest_difference(got.first_gradients, expected.first_gradients) <= 1e-12);
  }
}

TEST_CASE("threads train under every schedule with the bits of the interpreter", "[examples]") {
  const ScheduleKind kind = GENERATE(from_range(all_kinds()));
  const LmConfig config = tiny_config(Storage::fp32);
  const Case layout = case_of(kind, 2);
  const Training training{.steps = 2};
  check_same_bits(train_threads(config, layout, training), train_interpreted(config, layout, training));
}

TEST_CASE("one W left out changes the matrices of its chunk, and no other parameter", "[examples]") {
  const ScheduleKind kind = GENERATE(ScheduleKind::zb_h1, ScheduleKind::zb_v, ScheduleKind::v_half);
  const LmConfig config = tiny_config(Storage::fp64);
  const Case layout = case_of(kind, 2);
  const Outcome whole = train_interpreted(config, layout, {});
  const auto program = make_program(config, layout);
  for (const ChunkId chunk : {ChunkId(1), ChunkId(3)}) {
    const Outcome missing = train_interpreted(config, layout, {.without_weight = {{chunk, Microbatch(1)}}});
    CHECK(missing.losses == whole.losses);
    const SublayerRange own = program->depth.sublayers_of(chunk);
    REQUIRE(own.size() > 0);
    for (const auto& [name, gradient] : whole.first_gradients) {
      const bool gain = name.ends_with(".norm");
      bool mine = name == "head.weight" && chunk == ChunkId(3);
      for (int l = own.begin; l < own.end; ++l) {
        mine = mine || (name.starts_with("sublayer." + std::to_string(l) + ".") && !gain);
      }
      CAPTURE(to_string(kind), chunk.value, name);
      CHECK((missing.first_gradients.at(name) == gradient) == !mine);
    }
  }
}

TEST_CASE("what waits for W is the input and output gradient of every matrix product", "[examples]") {
  LmConfig config = tiny_config(Storage::fp32);
  // One rank, one microbatch: everything waits at once if the W come last, as they do in ZB-H1.
  const Outcome split = train_interpreted(config, {.pp = 1, .microbatches = 1, .schedule = ScheduleKind::zb_h1}, {});
  const std::int64_t d = config.width;
  const std::int64_t h = config.mlp_width();
  const std::int64_t attention = (d + 3 * d) + (d + d);
  const std::int64_t swiglu = (d + 2 * h) + (h + d);
  const std::int64_t head = d + kVocabulary;
  CHECK(split.peak_deferred_bytes ==
        static_cast<std::size_t>(config.tokens() * (3 * attention + 3 * swiglu + head)) * sizeof(float));
  CHECK(train_interpreted(config, {.pp = 1, .microbatches = 1}, {}).peak_deferred_bytes == 0);
}
