// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "plumb/kernels/counter_rng.hpp"
#include "support/catch.hpp"

using plumb::CounterRng;

TEST_CASE("a number depends on seed, name and index alone", "[kernels]") {
  const CounterRng rng(1, "weight");
  CHECK(CounterRng(1, "weight").bits(17) == rng.bits(17));
  std::set<std::uint64_t> seen;
  for (const char* name : {"weight", "weighu", "w", ""}) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      for (std::uint64_t i = 0; i < 500; ++i) {
        seen.insert(CounterRng(seed, name).bits(i));
      }
    }
  }
  CHECK(seen.size() == 4 * 4 * 500);
}

TEST_CASE("these very numbers are promised, so that old checkpoints and runs can be repeated", "[kernels]") {
  const CounterRng rng(42, "depth.0.query");
  CHECK(rng.bits(0) == 0xff571790b3f80611ULL);
  CHECK(rng.bits(1) == 0x04f8c62c44977a32ULL);
}

TEST_CASE("uniform numbers fill the unit interval and normal numbers have their moments", "[kernels]") {
  const CounterRng rng(3, "moments");
  constexpr int kDraws = 100000;
  double mean = 0;
  double square = 0;
  double fourth = 0;
  std::vector<int> bins(10);
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double u = rng.uniform(i);
    REQUIRE(u >= 0.0);
    REQUIRE(u < 1.0);
    ++bins[static_cast<std::size_t>(u * 10)];
    const double z = rng.normal(i);
    REQUIRE(std::isfinite(z));
    mean += z / kDraws;
    square += z * z / kDraws;
    fourth += z * z * z * z / kDraws;
  }
  for (const int count : bins) {
    CHECK(std::abs(count - kDraws / 10) < 500);
  }
  CHECK(std::abs(mean) < 0.015);
  CHECK(square == Approx(1.0).margin(0.02));
  CHECK(fourth == Approx(3.0).margin(0.15));
}

TEST_CASE("filling draws the same numbers in either format", "[kernels]") {
  const CounterRng rng(5, "fill");
  std::vector<float> narrow(33);
  std::vector<double> wide(33);
  fill_normal(rng, 1.0, 0.5, std::span<float>(narrow));
  fill_normal(rng, 1.0, 0.5, std::span<double>(wide));
  for (std::size_t i = 0; i < wide.size(); ++i) {
    CHECK(wide[i] == 1.0 + 0.5 * rng.normal(i));
    CHECK(narrow[i] == static_cast<float>(wide[i]));
  }
}
