// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <random>

#include "plumb/cache/cuts.hpp"
#include "plumb/cache/volume.hpp"
#include "plumb/schedule/error.hpp"
#include "support/catch.hpp"

namespace plumb {
namespace {

int heaviest(const std::vector<int>& cuts) {
  int most = 0;
  for (std::size_t i = 0; i < cuts.size(); ++i)
    most = std::max(most, cuts[i] - (i == 0 ? 0 : cuts[i - 1]));
  return most;
}

struct Found {
  std::int64_t traffic = -1;
  std::int64_t distance = 0;
};

// Every split there is, counted by the closed expression.
void try_all(const Layout& layout, const CutRequest& request, const std::vector<int>& even, std::vector<int>& cuts,
             Found& best) {
  const int step = request.sublayers / request.units;
  const int last = cuts.empty() ? 0 : cuts.back();
  if (static_cast<int>(cuts.size()) == layout.num_chunks() - 1) {
    if (request.sublayers - last > heaviest(even)) return;
    cuts.push_back(request.sublayers);
    const DepthMap depth(request.sublayers, request.block, cuts, request.residual);
    Found here{expected_units(layout, depth, request.policy), 0};
    for (std::size_t i = 0; i < cuts.size(); ++i)
      here.distance += std::abs(cuts[i] - even[i]) / step;
    if (best.traffic < 0 || std::pair(here.traffic, here.distance) < std::pair(best.traffic, best.distance))
      best = here;
    cuts.pop_back();
    return;
  }
  for (int cut = last; cut <= std::min(request.sublayers, last + heaviest(even)); cut += step) {
    cuts.push_back(cut);
    try_all(layout, request, even, cuts, best);
    cuts.pop_back();
  }
}

}  // namespace

TEST_CASE("least-traffic cuts send what the best of all splits sends", "[cache]") {
  std::mt19937 random(7);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  int saved = 0;
  for (int round = 0; round < 400; ++round) {
    const int pp = draw(1, 4);
    const int vp = draw(1, pp > 2 ? 2 : 3);
    const Layout layout(pp, vp, 1, draw(0, 1) == 0 ? Placement::loop : Placement::vee);
    const int step = draw(1, 2);
    const int units = draw(1, 12);
    const int sublayers = units * step;
    const bool full = draw(0, 5) == 0;
    const CutRequest request{.sublayers = sublayers,
                             .units = units,
                             .block = full ? 1 : draw(1, sublayers),
                             .residual = full ? Residual::attnres_full : Residual::attnres_block,
                             .policy = draw(0, 2) == 0 ? Policy::naive : Policy::cached};
    const std::vector<int> even = DepthMap::even_cuts(sublayers, units, layout.num_chunks());
    const std::vector<int> cuts = least_traffic_cuts(layout, request);
    Found best;
    std::vector<int> tried;
    try_all(layout, request, even, tried, best);
    std::int64_t distance = 0;
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      REQUIRE(cuts[i] % step == 0);
      distance += std::abs(cuts[i] - even[i]) / step;
    }
    INFO("P=" << pp << " V=" << vp << " L=" << sublayers << " units " << units << " S=" << request.block);
    const DepthMap depth(sublayers, request.block, cuts, request.residual);
    REQUIRE(heaviest(cuts) <= heaviest(even));
    REQUIRE(expected_units(layout, depth, request.policy) == best.traffic);
    REQUIRE(distance == best.distance);
    const DepthMap plain(sublayers, request.block, even, request.residual);
    saved += expected_units(layout, plain, request.policy) > best.traffic ? 1 : 0;
  }
  CHECK(saved > 40);  // even cuts are often not the best
}

TEST_CASE("least-traffic cuts of Kimi K3 save partials", "[cache]") {
  const Layout layout(8, 4, 1);
  const CutRequest request{.sublayers = 186, .units = 93, .block = 24};
  const DepthMap depth(186, 24, least_traffic_cuts(layout, request));
  const DepthMap even(186, 24, DepthMap::even_cuts(186, 93, 32));
  CHECK(expected_units(layout, even, Policy::cached) == 77);
  CHECK(expected_units(layout, depth, Policy::cached) < 77);
}

TEST_CASE("cuts of a standard residual are even", "[cache]") {
  const CutRequest request{.sublayers = 10, .units = 5, .block = 1, .residual = Residual::standard};
  CHECK(least_traffic_cuts(Layout(3, 1, 1), request) == DepthMap::even_cuts(10, 5, 3));
}

TEST_CASE("a search that would not end is refused with the way out", "[cache]") {
  CHECK_THROWS_AS(least_traffic_cuts(Layout(4096, 16, 1), {.sublayers = 65537, .units = 65537, .block = 8}),
                  InputError);
  CHECK_NOTHROW(least_traffic_cuts(Layout(256, 16, 1), {.sublayers = 8191, .units = 8191, .block = 8}));
  CHECK_THROWS_AS(least_traffic_cuts(Layout(2, 1, 1), {.sublayers = 8, .units = 3, .block = 2}), InputError);
  CHECK_THROWS_AS(least_traffic_cuts(Layout(2, 1, 1), {.sublayers = 8, .units = 8, .block = 9}), InputError);
}

}  // namespace plumb
