// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>
#include <vector>

#include "plumb/cache/volume.hpp"
#include "plumb/schedule/error.hpp"
#include "support/catch.hpp"
#include "support/layouts.hpp"

namespace plumb {
namespace {

using test::block_policies;

// What crosses each cut, found by walking the chunks with explicit sets. `have[r]`: blocks that rank r made or
// received.
struct Walk {
  std::vector<std::int64_t> hop_units;  // [cut]
  std::int64_t units = 0;
  std::int64_t embedding_units = 0;
  std::int64_t partial_units = 0;
};

// Blocks whose last sublayer lies before `end`, counted one sublayer at a time; the embedding exists from the start.
std::set<int> closed_before(const DepthMap& depth, int end) {
  std::set<int> closed = {0};
  for (int l = 1; l <= end; ++l) {
    if (l % depth.block_sublayers() == 0 || l == depth.sublayers()) {
      closed.insert((l - 1) / depth.block_sublayers() + 1);
    }
  }
  return closed;
}

Walk walk(const Layout& layout, const DepthMap& depth, bool naive) {
  Walk result;
  std::vector<std::set<int>> have(static_cast<std::size_t>(layout.pp()));
  for (int c = 0; c + 1 < layout.num_chunks(); ++c) {
    const int cut = depth.cuts()[static_cast<std::size_t>(c)];
    const std::set<int> closed = closed_before(depth, cut);
    const std::size_t from = layout.rank_of(ChunkId(c)).index();
    const std::size_t to = layout.rank_of(ChunkId(c + 1)).index();
    have[from].insert(closed.begin(), closed.end());
    std::int64_t units = 0;
    if (from != to) {
      for (const int block : closed) {
        if (!naive && have[to].count(block) > 0) continue;
        ++units;
        if (block == 0) ++result.embedding_units;
      }
      if (cut % depth.block_sublayers() != 0 && cut != depth.sublayers()) {
        ++units;
        ++result.partial_units;
      }
      have[to].insert(closed.begin(), closed.end());
    }
    result.hop_units.push_back(units);
    result.units += units;
  }
  return result;
}

Layout one_step(int pp, int vp, Placement placement = Placement::loop) { return Layout(pp, vp, 1, placement); }

DepthMap aligned_depth(const Layout& layout, int blocks_per_chunk, int block) {
  const int sublayers = layout.num_chunks() * blocks_per_chunk * block;
  return DepthMap(sublayers, block, DepthMap::even_cuts(sublayers, sublayers, layout.num_chunks()));
}

PolicyVolume counted(const Layout& layout, const DepthMap& depth, Policy policy) {
  return count_volume(make_routing(layout, depth, policy), layout);
}

std::vector<std::int64_t> hop_units(const PolicyVolume& volume) {
  std::vector<std::int64_t> units;
  for (const HopVolume& hop : volume.hops) {
    units.push_back(hop.units);
  }
  return units;
}

std::int64_t largest(const std::vector<std::int64_t>& values) {
  std::int64_t result = 0;
  for (const std::int64_t value : values) {
    result = std::max(result, value);
  }
  return result;
}

void check_against_walk(const Layout& layout, const DepthMap& depth) {
  for (const Policy policy : block_policies) {
    INFO(to_string(policy));
    const Walk expected = walk(layout, depth, policy == Policy::naive);
    const PolicyVolume volume = counted(layout, depth, policy);
    CHECK(expected_units(layout, depth, policy) == expected.units);
    CHECK(volume.units == expected.units);
    CHECK(volume.embedding_units == expected.embedding_units);
    CHECK(volume.partial_units == expected.partial_units);
    CHECK(volume.block_units == expected.units - expected.embedding_units - expected.partial_units);
    if (policy == Policy::direct) continue;
    CHECK(hop_units(volume) == expected.hop_units);
    CHECK(volume.peak_hop_units == largest(expected.hop_units));
  }
  CHECK(volume_formula(layout, depth).exact_minimum_units == walk(layout, depth, false).units);
}

TEST_CASE("the formulas and the routings send what counting with sets says, on every layout", "[cache][volume]") {
  test::Dice dice(1);
  for (const Placement placement : {Placement::loop, Placement::vee}) {
    for (int pp = 1; pp <= 16; ++pp) {
      for (int vp = 1; vp <= 6; ++vp) {
        const Layout layout = one_step(pp, vp, placement);
        for (int trial = 0; trial < 6; ++trial) {
          const DepthMap depth = test::random_depth(dice, layout.num_chunks(), 4 * layout.num_chunks());
          INFO("P=" << pp << " V=" << vp << " " << to_string(placement) << " L=" << depth.sublayers()
                    << " S=" << depth.block_sublayers());
          check_against_walk(layout, depth);
        }
      }
    }
  }
}

TEST_CASE("aligned cuts give the table of the contract", "[cache][volume]") {
  struct Row {
    int pp, vp;
    std::int64_t naive, paper, exact_without_embedding, exact, peak_naive, peak_exact;
  };
  constexpr Row rows[] = {
      {4, 2, 35, 22, 18, 21, 8, 4},
      {4, 4, 135, 54, 42, 45, 16, 4},
      {8, 2, 135, 92, 84, 91, 16, 8},
      {8, 4, 527, 220, 196, 203, 32, 8},
  };
  for (const Row& row : rows) {
    INFO("P=" << row.pp << " V=" << row.vp);
    const Layout layout = one_step(row.pp, row.vp);
    const DepthMap depth = aligned_depth(layout, 1, 2);
    const VolumeFormula formula = volume_formula(layout, depth);
    CHECK(formula.aligned);
    CHECK(formula.blocks_per_chunk == 1);
    CHECK(formula.cached_paper_units == static_cast<double>(row.paper));
    CHECK(formula.exact_minimum_units == row.exact);
    const PolicyVolume naive = counted(layout, depth, Policy::naive);
    CHECK(naive.units == row.naive);
    CHECK(static_cast<double>(naive.block_units) == formula.naive_paper_units);
    CHECK(naive.embedding_units == layout.num_chunks() - 1);
    CHECK(naive.peak_hop_units == row.peak_naive);
    for (const Policy policy : {Policy::relay, Policy::cached}) {
      const PolicyVolume volume = counted(layout, depth, policy);
      CHECK(volume.units == row.exact);
      CHECK(volume.block_units == row.exact_without_embedding);
      CHECK(volume.embedding_units == layout.pp() - 1);
      CHECK(volume.peak_hop_units == row.peak_exact);
    }
    CHECK(counted(layout, depth, Policy::direct).units == row.exact);
  }
}

TEST_CASE("the paper's formulas hold for every aligned loop layout, but charge receivers for their own blocks",
          "[cache][volume]") {
  for (int pp = 1; pp <= 8; ++pp) {
    for (int vp = 1; vp <= 4; ++vp) {
      for (int np = 1; np <= 3; ++np) {
        const Layout layout = one_step(pp, vp);
        const DepthMap depth = aligned_depth(layout, np, 3);
        const VolumeFormula formula = volume_formula(layout, depth);
        INFO("P=" << pp << " V=" << vp << " Np=" << np);
        CHECK(formula.aligned);
        CHECK(formula.blocks_per_chunk == np);
        if (pp > 1) {  // one rank sends nothing, which the paper does not consider
          CHECK(formula.naive_paper_units == static_cast<double>(counted(layout, depth, Policy::naive).block_units));
        }
        const double without_embedding = static_cast<double>(formula.exact_minimum_units - (pp - 1));
        CHECK(formula.cached_paper_units - without_embedding == (vp - 1) * pp * np);
      }
    }
  }
}

TEST_CASE("chunks that close different numbers of blocks, or none, are not aligned", "[cache][volume]") {
  const Layout layout = one_step(2, 2);
  CHECK_FALSE(volume_formula(layout, DepthMap(8, 4, {2, 4, 6, 8})).aligned);
  CHECK_FALSE(volume_formula(layout, DepthMap(8, 2, {4, 4, 6, 8})).aligned);
  CHECK_FALSE(volume_formula(layout, DepthMap(8, 8, {2, 4, 6, 8}, Residual::standard)).aligned);
  CHECK(volume_formula(layout, DepthMap(8, 4, {2, 4, 6, 8})).blocks_per_chunk == 0.5);
}

TEST_CASE("the paper's figure with blocks of two chunks counts 14 against 6 in the second round", "[cache][volume]") {
  const Layout layout = one_step(4, 2);
  const DepthMap depth(16, 4, DepthMap::even_cuts(16, 16, 8));
  const auto second_round = [&](Policy policy) {
    const Routing routing = make_routing(layout, depth, policy);
    std::vector<std::int64_t> blocks(8, 0);
    for (const Transfer& transfer : routing.transfers) {
      blocks[transfer.from_chunk.index()] += transfer.units() - (transfer.partial ? 1 : 0);
    }
    return std::vector<std::int64_t>(blocks.begin() + 3, blocks.begin() + 7);
  };
  CHECK(second_round(Policy::naive) == std::vector<std::int64_t>{3, 3, 4, 4});
  CHECK(second_round(Policy::relay) == std::vector<std::int64_t>{2, 1, 2, 1});
  CHECK(second_round(Policy::cached) == std::vector<std::int64_t>{2, 1, 2, 1});
}

TEST_CASE("K3 on 8 ranks of 4 virtual stages sends 167 units naively and 77 at least", "[cache][volume]") {
  const Layout layout = one_step(8, 4);
  const DepthMap depth(186, 24, DepthMap::even_cuts(186, 93, 32));
  CHECK(expected_units(layout, depth, Policy::naive) == 167);
  CHECK(volume_formula(layout, depth).exact_minimum_units == 77);
  CHECK(volume_formula(layout, depth).blocks_per_chunk == 0.25);
  CHECK(counted(layout, depth, Policy::naive).units == 167);
  for (const Policy policy : {Policy::relay, Policy::cached, Policy::direct}) {
    CHECK(counted(layout, depth, policy).units == 77);
  }
}

TEST_CASE("with one virtual stage a cache saves nothing", "[cache][volume]") {
  test::Dice dice(2);
  for (int pp = 1; pp <= 12; ++pp) {
    const Layout layout = one_step(pp, 1, dice.roll(0, 1) == 0 ? Placement::loop : Placement::vee);
    const DepthMap depth = test::random_depth(dice, pp, 60);
    CHECK(expected_units(layout, depth, Policy::naive) == expected_units(layout, depth, Policy::cached));
  }
}

TEST_CASE("one rank sends nothing and still lists its hops", "[cache][volume]") {
  const Layout layout = one_step(1, 4);
  const DepthMap depth(8, 2, {2, 4, 6, 8});
  for (const Policy policy : block_policies) {
    const PolicyVolume volume = counted(layout, depth, policy);
    CHECK(volume.units == 0);
    CHECK(volume.hops.size() == (policy == Policy::direct ? 0 : 3));
  }
}

TEST_CASE("a standard residual sends one unit over every cut between ranks", "[cache][volume]") {
  for (const Placement placement : {Placement::loop, Placement::vee}) {
    const Layout layout = one_step(3, 3, placement);
    const DepthMap depth(20, 20, {2, 2, 4, 7, 8, 20, 20, 20, 20}, Residual::standard);
    const std::int64_t hops = placement == Placement::loop ? 8 : 6;
    CHECK(expected_units(layout, depth, Policy::standard) == hops);
    const PolicyVolume volume = counted(layout, depth, Policy::standard);
    CHECK(volume.units == hops);
    CHECK(volume.partial_units == hops);
    CHECK(volume.peak_hop_units == 1);
    CHECK(volume.hops.size() == 8);
  }
}

TEST_CASE("rows of a volume agree with its totals", "[cache][volume]") {
  test::Dice dice(3);
  for (int trial = 0; trial < 40; ++trial) {
    const Layout layout = one_step(dice.roll(2, 6), dice.roll(1, 4));
    const DepthMap depth = test::random_depth(dice, layout.num_chunks(), 50);
    for (const Policy policy : block_policies) {
      const PolicyVolume volume = counted(layout, depth, policy);
      std::int64_t units = 0;
      for (const HopVolume& hop : volume.hops) {
        units += hop.units;
        CHECK(hop.from_rank == layout.rank_of(hop.from_chunk));
        CHECK(hop.to_rank == layout.rank_of(hop.to_chunk));
        CHECK(hop.urgent_units <= hop.units);
        if (policy == Policy::naive || policy == Policy::relay) CHECK(hop.urgent_units == hop.units);
        if (policy == Policy::direct) CHECK(hop.units > 0);
      }
      CHECK(units == volume.units);
    }
  }
}

TEST_CASE("a formula for the wrong number of chunks or the wrong residual is refused", "[cache][volume]") {
  const Layout layout = one_step(2, 2);
  const DepthMap three(6, 2, {2, 4, 6});
  CHECK_THROWS_AS(volume_formula(layout, three), InputError);
  CHECK_THROWS_AS(expected_units(layout, three, Policy::naive), InputError);
  const DepthMap blocks(6, 2, {2, 4, 5, 6});
  CHECK_THROWS_AS(expected_units(layout, blocks, Policy::standard), InputError);
  const DepthMap standard(6, 6, {2, 4, 5, 6}, Residual::standard);
  CHECK_THROWS_AS(expected_units(layout, standard, Policy::cached), InputError);
}

}  // namespace
}  // namespace plumb
