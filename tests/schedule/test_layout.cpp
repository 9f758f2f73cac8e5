// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <set>

#include "plumb/schedule/layout.hpp"
#include "support.hpp"

namespace plumb {
namespace {

using Catch::Matchers::Contains;
using test::input_error_of;

template <class Visit>
void for_many_layouts(Visit&& visit) {
  for (const Placement placement : {Placement::loop, Placement::vee}) {
    for (int pp = 1; pp <= 9; ++pp) {
      for (int vp = 1; vp <= 6; ++vp)
        visit(Layout(pp, vp, 3, placement));
    }
  }
}

TEST_CASE("a chunk and its rank and virtual stage determine each other", "[schedule]") {
  for_many_layouts([](const Layout& layout) {
    std::set<std::pair<RankId, VirtualStage>> places;
    for (int c = 0; c < layout.num_chunks(); ++c) {
      const RankId rank = layout.rank_of(ChunkId(c));
      const VirtualStage stage = layout.virtual_stage_of(ChunkId(c));
      REQUIRE(rank.value >= 0);
      REQUIRE(rank.value < layout.pp());
      REQUIRE(stage.value >= 0);
      REQUIRE(stage.value < layout.vp());
      REQUIRE(layout.chunk_of(rank, stage) == ChunkId(c));
      places.insert({rank, stage});
    }
    REQUIRE(static_cast<int>(places.size()) == layout.num_chunks());
  });
}

TEST_CASE("the chunks of a rank ascend and are all that it runs", "[schedule]") {
  for_many_layouts([](const Layout& layout) {
    for (int r = 0; r < layout.pp(); ++r) {
      std::vector<ChunkId> expected;
      for (int c = 0; c < layout.num_chunks(); ++c) {
        if (layout.rank_of(ChunkId(c)) == RankId(r)) expected.push_back(ChunkId(c));
      }
      REQUIRE(layout.chunks_on(RankId(r)) == expected);
    }
  });
}

TEST_CASE("the next chunk on a rank is what a search finds", "[schedule]") {
  for_many_layouts([](const Layout& layout) {
    for (int r = 0; r < layout.pp(); ++r) {
      for (int c = -1; c < layout.num_chunks(); ++c) {
        int next = c + 1;
        while (next < layout.num_chunks() && layout.rank_of(ChunkId(next)) != RankId(r))
          ++next;
        REQUIRE(layout.next_chunk_on(RankId(r), ChunkId(c)) == ChunkId(next));
      }
    }
  });
}

TEST_CASE("loop placement deals chunks in turn and vee runs back and forth", "[schedule]") {
  const auto ranks = [](Placement placement) {
    const Layout layout(3, 3, 1, placement);
    std::vector<int> out;
    for (int c = 0; c < layout.num_chunks(); ++c)
      out.push_back(layout.rank_of(ChunkId(c)).value);
    return out;
  };
  CHECK(ranks(Placement::loop) == std::vector<int>{0, 1, 2, 0, 1, 2, 0, 1, 2});
  CHECK(ranks(Placement::vee) == std::vector<int>{0, 1, 2, 2, 1, 0, 0, 1, 2});
}

TEST_CASE("a layout out of range is refused with the field and its range", "[schedule]") {
  const int huge = std::numeric_limits<int>::max();
  const auto make = [](int pp, int vp, int m) { return input_error_of([&] { Layout(pp, vp, m); }); };
  for (const int bad : {0, -1, -huge, 4097, huge}) {
    CHECK_THAT(make(bad, 1, 1), Contains("P (pipeline ranks) is") && Contains("1..4096"));
  }
  for (const int bad : {0, -1, 1025, huge}) {
    CHECK_THAT(make(1, bad, 1), Contains("V (virtual stages per rank) is") && Contains("1..1024"));
  }
  for (const int bad : {0, -7, (1 << 20) + 1, huge}) {
    CHECK_THAT(make(1, 1, bad), Contains("M (microbatches) is") && Contains("1..1048576"));
  }
  CHECK_THAT(make(4096, 17, 1), Contains("69632 chunks") && Contains("V <= 16"));
  CHECK_THAT(make(4096, 16, 4097), Contains("M <= 4096"));
  CHECK_NOTHROW(Layout(4096, 16, 4096));
  CHECK_NOTHROW(Layout(1, 1, 1 << 20));
}

TEST_CASE("a layout can be had with another number of microbatches", "[schedule]") {
  const Layout layout(4, 2, 8, Placement::vee);
  CHECK(layout.with_microbatches(3) == Layout(4, 2, 3, Placement::vee));
  CHECK_THAT(input_error_of([&] { (void)layout.with_microbatches(0); }), Contains("M (microbatches) is 0"));
}

TEST_CASE("a placement is named by one of two words", "[schedule]") {
  for (const Placement placement : {Placement::loop, Placement::vee}) {
    CHECK(parse_placement(to_string(placement)) == placement);
  }
  for (const char* bad : {"", "Loop", "vee ", "ring", "lo\nop"}) {
    CHECK_THAT(input_error_of([&] { (void)parse_placement(bad); }), Contains("loop or vee"));
  }
}

}  // namespace
}  // namespace plumb
