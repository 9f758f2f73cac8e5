// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <numeric>
#include <random>

#include "plumb/schedule/depth_map.hpp"
#include "support.hpp"

namespace plumb {
namespace {

using Catch::Matchers::Contains;
using test::input_error_of;

// Walks the model sublayer by sublayer, as a forward pass would, and notes what happens.
struct Walk {
  std::vector<std::vector<int>> closed;  // per chunk
  std::vector<int> closer;               // per block
  std::vector<bool> open_after;          // per chunk
  std::vector<SublayerRange> block_range;

  Walk(int sublayers, int block, const std::vector<int>& cuts) : closed(cuts.size()) {
    closed[0].push_back(0);
    closer.push_back(0);
    block_range.push_back({0, 0});
    int l = 0;
    int in_block = 0;
    for (std::size_t c = 0; c < cuts.size(); ++c) {
      for (; l < cuts[c]; ++l) {
        if (in_block++ == 0) block_range.push_back({l, l});
        block_range.back().end = l + 1;
        if (in_block == block || l == sublayers - 1) {
          in_block = 0;
          closed[c].push_back(static_cast<int>(closer.size()));
          closer.push_back(static_cast<int>(c));
        }
      }
      open_after.push_back(in_block != 0);
    }
  }
};

std::vector<int> random_cuts(std::mt19937& random, int sublayers, int chunks) {
  std::vector<int> cuts;
  for (int c = 0; c < chunks - 1; ++c)
    cuts.push_back(std::uniform_int_distribution(0, sublayers)(random));
  std::sort(cuts.begin(), cuts.end());
  cuts.push_back(sublayers);
  return cuts;
}

void require_equal(const DepthMap& map, const Walk& walk) {
  REQUIRE(map.num_sources() == static_cast<int>(walk.closer.size()));
  REQUIRE(map.num_blocks() == map.num_sources() - 1);
  for (int n = 0; n < map.num_sources(); ++n) {
    REQUIRE(map.closer(BlockId(n)) == ChunkId(walk.closer[static_cast<std::size_t>(n)]));
    REQUIRE(map.sublayers_of_block(BlockId(n)) == walk.block_range[static_cast<std::size_t>(n)]);
  }
  for (int c = 0; c < map.num_chunks(); ++c) {
    const ChunkId chunk(c);
    std::vector<int> closed(static_cast<std::size_t>(map.num_closed(chunk)));
    std::iota(closed.begin(), closed.end(), map.first_closed(chunk).value);
    REQUIRE(closed == walk.closed[chunk.index()]);
    REQUIRE(map.sublayers_of(chunk) ==
            SublayerRange{c == 0 ? 0 : map.cuts()[chunk.index() - 1], map.cuts()[chunk.index()]});
    REQUIRE(map.partial_after(chunk) == (c + 1 < map.num_chunks() && walk.open_after[chunk.index()]));
    const bool reader = !map.sublayers_of(chunk).empty() || c == map.num_chunks() - 1;
    REQUIRE(map.reads_sources(chunk) == reader);
    for (int n = 0; n < map.num_sources(); ++n) {
      REQUIRE(map.reads(chunk, BlockId(n)) == (reader && walk.closer[static_cast<std::size_t>(n)] < c));
    }
  }
}

TEST_CASE("a depth map agrees with walking the model sublayer by sublayer", "[schedule]") {
  std::mt19937 random(1);
  for (int i = 0; i < 1500; ++i) {
    const int sublayers = std::uniform_int_distribution(1, 40)(random);
    const int block = std::uniform_int_distribution(1, sublayers)(random);
    const int chunks = std::uniform_int_distribution(1, 12)(random);
    const std::vector<int> cuts = random_cuts(random, sublayers, chunks);
    CAPTURE(sublayers, block, cuts);
    require_equal(DepthMap(sublayers, block, cuts), Walk(sublayers, block, cuts));
    require_equal(DepthMap(sublayers, 1, cuts, Residual::attnres_full), Walk(sublayers, 1, cuts));
  }
}

TEST_CASE("a cut inside a block leaves an open partial", "[schedule]") {
  const DepthMap map(12, 4, {3, 4, 8, 8, 12});
  CHECK(map.partial_after(ChunkId(0)));
  CHECK_FALSE(map.partial_after(ChunkId(1)));
  CHECK_FALSE(map.partial_after(ChunkId(2)));
  CHECK_FALSE(map.partial_after(ChunkId(3)));
  CHECK_FALSE(map.partial_after(ChunkId(4)));
}

TEST_CASE("a last chunk that is only the head closes nothing and reads everything", "[schedule]") {
  const DepthMap map(10, 4, {5, 10, 10});
  CHECK(map.num_closed(ChunkId(2)) == 0);
  CHECK_FALSE(map.partial_after(ChunkId(1)));
  for (int n = 0; n < map.num_sources(); ++n)
    CHECK(map.reads(ChunkId(2), BlockId(n)));
}

TEST_CASE("an empty first chunk still closes the embedding", "[schedule]") {
  const DepthMap map(6, 3, {0, 0, 6});
  CHECK(map.closer(BlockId(0)) == ChunkId(0));
  CHECK(map.num_closed(ChunkId(0)) == 1);
  CHECK(map.num_closed(ChunkId(1)) == 0);
  CHECK_FALSE(map.partial_after(ChunkId(0)));
}

TEST_CASE("a standard residual has no blocks and its hidden state crosses every cut", "[schedule]") {
  const DepthMap map(12, 0, {0, 4, 12, 12}, Residual::standard);
  CHECK(map.num_blocks() == 0);
  CHECK(map.num_sources() == 0);
  for (int c = 0; c < 4; ++c) {
    CHECK(map.partial_after(ChunkId(c)) == (c < 3));
    CHECK(map.num_closed(ChunkId(c)) == 0);
    CHECK_FALSE(map.reads_sources(ChunkId(c)));
  }
  CHECK(map == DepthMap(12, 5, {0, 4, 12, 12}, Residual::standard));
}

TEST_CASE("K3 has eight blocks and its last block is short", "[schedule]") {
  const DepthMap map(186, 24, DepthMap::even_cuts(186, 93, 32));
  CHECK(map.num_blocks() == 8);
  CHECK(map.num_sources() == 9);
  CHECK(map.sublayers_of_block(BlockId(8)) == SublayerRange{168, 186});
  CHECK(map.closer(BlockId(8)) == ChunkId(31));
}

TEST_CASE("even cuts deal whole units and the first chunks get one more", "[schedule]") {
  for (int per_unit = 1; per_unit <= 3; ++per_unit) {
    for (int units = 1; units <= 20; ++units) {
      for (int chunks = 1; chunks <= 24; ++chunks) {
        const std::vector<int> cuts = DepthMap::even_cuts(units * per_unit, units, chunks);
        REQUIRE(static_cast<int>(cuts.size()) == chunks);
        int before = 0;
        for (int c = 0; c < chunks; ++c) {
          const int size = cuts[static_cast<std::size_t>(c)] - before;
          before = cuts[static_cast<std::size_t>(c)];
          REQUIRE(size == per_unit * (units / chunks + (c < units % chunks ? 1 : 0)));
        }
        REQUIRE(before == units * per_unit);
      }
    }
  }
}

TEST_CASE("even cuts refuse units that do not divide the depth", "[schedule]") {
  CHECK_THAT(input_error_of([] { (void)DepthMap::even_cuts(10, 4, 2); }),
             Contains("10 sublayers") && Contains("4 equal"));
  CHECK_THAT(input_error_of([] { (void)DepthMap::even_cuts(10, 0, 2); }), Contains("must divide L"));
  CHECK_THAT(input_error_of([] { (void)DepthMap::even_cuts(10, 10, 0); }), Contains("chunks is 0"));
  CHECK_THAT(input_error_of([] { (void)DepthMap::even_cuts(-3, 1, 1); }), Contains("L (sublayers) is -3"));
}

TEST_CASE("a depth out of range is refused with the field and its range", "[schedule]") {
  const int huge = std::numeric_limits<int>::max();
  const auto make = [](int sublayers, int block, std::vector<int> cuts, Residual residual = Residual::attnres_block) {
    return input_error_of([&] { DepthMap(sublayers, block, cuts, residual); });
  };
  for (const int bad : {0, -1, -huge, (1 << 20) + 1, huge}) {
    CHECK_THAT(make(bad, 1, {bad}), Contains("L (sublayers) is") && Contains("1..1048576"));
  }
  for (const int bad : {0, -1, 13, huge}) {
    CHECK_THAT(make(12, bad, {12}), Contains("S (sublayers per block) is") && Contains("1..12"));
  }
  CHECK_THAT(make(12, 2, {12}, Residual::attnres_full), Contains("S = 1"));
  CHECK_THAT(make(12, 3, {}), Contains("chunks is 0"));
  CHECK_THAT(make(12, 3, std::vector<int>(65537, 12)), Contains("chunks is 65537"));
}

TEST_CASE("a bad cut is refused with its place and what is legal", "[schedule]") {
  const auto make = [](std::vector<int> cuts) { return input_error_of([&] { DepthMap(12, 3, cuts); }); };
  CHECK_THAT(make({4, 3, 12}), Contains("cut 1 is 3") && Contains("at least the cut before it, 4"));
  CHECK_THAT(make({4, 13, 13}), Contains("cut 1 is 13") && Contains("at most L = 12"));
  CHECK_THAT(make({-1, 12}), Contains("cut 0 is -1") && Contains("at least 0"));
  CHECK_THAT(make({4, 8, 11}), Contains("cut 2) is 11") && Contains("must equal L = 12"));
}

}  // namespace
}  // namespace plumb
