// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "kernels/support/random_spec.hpp"
#include "plumb/kernels/depth_parameters.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

DepthConfig model(int sublayers, int block, std::int64_t width) {
  DepthConfig config;
  config.num_sublayers = sublayers;
  config.block_length = block;
  config.width = width;
  return config;
}

}  // namespace

TEST_CASE("the whole model adds exactly 2 (L+1) d parameters", "[kernels]") {
  CHECK(num_depth_parameters(model(8, 2, 256)) == 4608);
  CHECK(num_depth_parameters(model(48, 6, 768)) == 75264);
  DepthConfig config = model(8, 2, 256);
  CHECK(DepthParameters(config, {0, 8, true}).num_values() == 4608);
  config.head_aggregate = false;
  CHECK(num_depth_parameters(config) == 4096);
  CHECK(DepthParameters(config, {0, 8, true}).num_values() == 4096);
}

TEST_CASE("no parameter is registered twice and none is missing, however the model is cut", "[kernels]") {
  for (std::uint64_t trial = 0; trial < 100; ++trial) {
    Dice dice(trial);
    ModelSpec spec = random_spec(dice);
    spec.cuts = random_cuts(dice, spec.config.num_sublayers);
    ChunkedModel<float> model(spec);
    std::set<std::string> names;
    std::set<const void*> addresses;
    std::int64_t values = 0;
    model.visit([&](const DepthParameter& each) {
      CHECK(names.insert(each.name).second);
      CHECK(addresses.insert(each.value.data).second);
      CHECK(addresses.insert(each.gradient.data).second);
      CHECK(each.value.tokens == 1);
      values += each.value.num_elements();
    });
    INFO(describe(spec));
    CHECK(values == num_depth_parameters(spec.config));
  }
}

TEST_CASE("queries start at zero, gains at one, gradients at zero", "[kernels]") {
  const DepthParameters parameters(model(4, 2, 16), {1, 3, true});
  int visited = 0;
  parameters.for_each([&](const DepthParameter& each) {
    ++visited;
    const bool query = each.name.ends_with(".query");
    for (std::int64_t j = 0; j < each.value.width; ++j) {
      CHECK(elements<float>(each.value)[j] == (query ? 0.0F : 1.0F));
      CHECK(elements<float>(each.gradient)[j] == 0.0F);
    }
  });
  CHECK(visited == 8);
}

TEST_CASE("normal queries have spread 0.02 and depend on seed and name alone", "[kernels]") {
  DepthConfig config = model(6, 2, 4096);
  config.query_init = QueryInit::normal;
  const DepthParameters whole(config, {0, 6, true});
  const DepthParameters part(config, {3, 2, false});
  const float* in_whole = elements<float>(whole.sublayer(4).query);
  const float* in_part = elements<float>(part.sublayer(1).query);
  CHECK(std::equal(in_whole, in_whole + 4096, in_part));
  CHECK_FALSE(std::equal(in_whole, in_whole + 4096, elements<float>(whole.sublayer(3).query)));

  double mean = 0;
  double square = 0;
  for (int j = 0; j < 4096; ++j) {
    mean += static_cast<double>(in_whole[j]) / 4096;
    square += static_cast<double>(in_whole[j]) * static_cast<double>(in_whole[j]) / 4096;
  }
  CHECK(std::abs(mean) < 0.002);
  CHECK(std::sqrt(square) == Approx(0.02).epsilon(0.05));

  DepthConfig other = config;
  other.seed = 1;
  CHECK_FALSE(std::equal(in_whole, in_whole + 4096, elements<float>(DepthParameters(other, {4, 1}).sublayer(0).query)));

  // The fp32 start is the fp64 start rounded, so both can be compared from the same seed.
  DepthConfig twice = config;
  twice.storage = Storage::fp64;
  const DepthParameters exact(twice, {4, 1, false});
  for (int j = 0; j < 4096; ++j) {
    CHECK(static_cast<float>(elements<double>(exact.sublayer(0).query)[j]) == in_whole[j]);
  }
}

TEST_CASE("the head's pair exists on the head chunk alone and only if configured", "[kernels]") {
  DepthConfig config = model(4, 2, 3);
  CHECK(DepthParameters(config, {4, 0, true}).num_values() == 6);
  CHECK_FALSE(DepthParameters(config, {2, 2, false}).has_head());
  CHECK_THROWS_AS(DepthParameters(config, {2, 2, false}).head(), std::logic_error);
  config.head_aggregate = false;
  CHECK_FALSE(DepthParameters(config, {2, 2, true}).has_head());
  CHECK_THROWS_AS(DepthParameters(config, {2, 2, true}).sublayer(2), std::out_of_range);
  config.block_length = 5;
  CHECK_THROWS_AS(DepthParameters(config, {0, 4, true}), std::invalid_argument);
}

TEST_CASE("moving and clearing keep every address", "[kernels]") {
  DepthParameters parameters(model(2, 1, 4), {0, 2, true});
  const View before = parameters.sublayer(1).gain_gradient;
  elements<float>(before)[2] = 5;
  DepthParameters moved = std::move(parameters);
  CHECK(moved.sublayer(1).gain_gradient.data == before.data);
  moved.zero_gradients();
  CHECK(elements<float>(before)[2] == 0);
}
