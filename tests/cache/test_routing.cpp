// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "cache/support/layouts.hpp"
#include "plumb/cache/routing.hpp"
#include "plumb/schedule/error.hpp"
#include "support/catch.hpp"

using namespace plumb;
using plumb::test::block_policies;
using plumb::test::Dice;

namespace {

Layout random_layout(Dice& dice) {
  return Layout(dice.roll(1, 7), dice.roll(1, 5), 2, dice.roll(0, 1) == 0 ? Placement::loop : Placement::vee);
}

const Holding& at(const Routing& routing, HoldingId id) { return routing.holdings[id.index()]; }

}  // namespace

TEST_CASE("every read finds its block on its own rank, brought by that chunk or an earlier one", "[cache]") {
  Dice dice(1);
  for (int round = 0; round < 400; ++round) {
    const Layout layout = random_layout(dice);
    const DepthMap depth = test::random_depth(dice, layout.num_chunks(), 40);
    for (const Policy policy : block_policies) {
      const Routing routing = make_routing(layout, depth, policy);
      for (ChunkId chunk{0}; chunk.value < layout.num_chunks(); chunk = chunk.next()) {
        for (BlockId block{0}; block.value < depth.num_sources(); block = block.next()) {
          if (!depth.reads(chunk, block)) {
            continue;
          }
          const Holding& holding = at(routing, routing.holding_for(block, chunk, layout));
          REQUIRE(holding.rank == layout.rank_of(chunk));
          REQUIRE(holding.bringer <= chunk);
          REQUIRE(std::count(holding.readers.begin(), holding.readers.end(), chunk) == 1);
        }
      }
    }
  }
}

TEST_CASE("each holding but the roots is filled by exactly one transfer, from its parent's rank", "[cache]") {
  Dice dice(2);
  for (int round = 0; round < 400; ++round) {
    const Layout layout = random_layout(dice);
    const DepthMap depth = test::random_depth(dice, layout.num_chunks(), 40);
    for (const Policy policy : block_policies) {
      const Routing routing = make_routing(layout, depth, policy);
      std::vector<int> filled(routing.holdings.size(), 0);
      std::set<std::pair<int, int>> seen;  // (block, rank)
      for (const Transfer& transfer : routing.transfers) {
        REQUIRE(transfer.from != transfer.to);
        REQUIRE(transfer.units() > 0);
        for (const HoldingId id : transfer.holdings) {
          ++filled[id.index()];
          REQUIRE(at(routing, id).rank == transfer.to);
          REQUIRE(at(routing, at(routing, id).parent).rank == transfer.from);
        }
      }
      for (std::size_t h = 0; h < routing.holdings.size(); ++h) {
        const Holding& holding = routing.holdings[h];
        REQUIRE(filled[h] == (holding.is_root() ? 0 : 1));
        if (policy != Policy::naive) {
          REQUIRE(seen.insert({holding.block.value, holding.rank.value}).second);
        }
      }
    }
  }
}

TEST_CASE("a cached transfer starts on the arrival that brought its blocks or on the compute that closed them",
          "[cache]") {
  Dice dice(3);
  for (int round = 0; round < 300; ++round) {
    const Layout layout = random_layout(dice);
    const DepthMap depth = test::random_depth(dice, layout.num_chunks(), 40);
    const Routing routing = make_routing(layout, depth, Policy::cached);
    for (const Transfer& transfer : routing.transfers) {
      for (const HoldingId id : transfer.holdings) {
        const Holding& parent = at(routing, at(routing, id).parent);
        if (transfer.after_arrival.value >= 0) {
          REQUIRE(parent.transfer == transfer.after_arrival);
        } else {
          REQUIRE(parent.is_root());
          REQUIRE(parent.bringer == transfer.after_chunk);
        }
      }
      REQUIRE((transfer.lane == MessageLane::urgent) ==
              (transfer.after_arrival.value < 0 && transfer.after_chunk == transfer.from_chunk));
    }
  }
}

TEST_CASE("relay and cached share one tree, direct is a star", "[cache]") {
  Dice dice(4);
  for (int round = 0; round < 200; ++round) {
    const Layout layout = random_layout(dice);
    const DepthMap depth = test::random_depth(dice, layout.num_chunks(), 40);
    const Routing relay = make_routing(layout, depth, Policy::relay);
    const Routing cached = make_routing(layout, depth, Policy::cached);
    const Routing direct = make_routing(layout, depth, Policy::direct);
    REQUIRE(relay.holdings.size() == cached.holdings.size());
    for (std::size_t h = 0; h < relay.holdings.size(); ++h) {
      REQUIRE(relay.holdings[h].rank == cached.holdings[h].rank);
      REQUIRE(relay.holdings[h].block == cached.holdings[h].block);
      REQUIRE(relay.holdings[h].parent == cached.holdings[h].parent);
    }
    for (const Holding& holding : direct.holdings) {
      REQUIRE((holding.is_root() || at(direct, holding.parent).is_root()));
    }
    REQUIRE(relay.units() == direct.units());
  }
}

TEST_CASE("an empty hop sends nothing: a chunk without news gets no transfer", "[cache]") {
  // Chunk 1 is empty and the cut before it is a block end, so ranks 1 and 2 need b_0 and b_1 only once each.
  const Layout layout(3, 1, 2);
  const DepthMap depth(4, 2, {2, 2, 4});
  const Routing routing = make_routing(layout, depth, Policy::relay);
  REQUIRE(routing.transfers.size() == 2);
  const DepthMap again(4, 2, {4, 4, 4});
  REQUIRE(make_routing(Layout(1, 3, 2), again, Policy::cached).transfers.empty());
}

TEST_CASE("with a standard residual one hidden state crosses each boundary between ranks", "[cache]") {
  const Layout layout(4, 2, 2, Placement::vee);  // ranks 0 1 2 3 3 2 1 0
  const DepthMap depth(8, 1, DepthMap::even_cuts(8, 8, 8), Residual::standard);
  const Routing routing = make_routing(layout, depth, Policy::standard);
  REQUIRE(routing.holdings.empty());
  REQUIRE(routing.units() == 6);
}

TEST_CASE("a policy that does not fit the residual or the cuts is refused", "[cache]") {
  const DepthMap block(4, 2, {2, 4});
  REQUIRE_THROWS_AS(make_routing(Layout(2, 1, 1), block, Policy::standard), InputError);
  REQUIRE_THROWS_AS(make_routing(Layout(4, 1, 1), block, Policy::cached), InputError);
  REQUIRE_THROWS_AS(parse_policy("fast"), InputError);
  REQUIRE(parse_policy("cached") == Policy::cached);
}
