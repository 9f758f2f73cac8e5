// SPDX-License-Identifier: Apache-2.0
//
// What each routing policy adds to a step over a standard residual under the same schedule: interleaved with groups of
// P (1F1B where V = 1), B = 2F, a value or gradient unit takes the fraction u of a chunk's forward on a link, one
// full-duplex network end per rank. The expected figures come from simulations made independently of this code.
#include "cache/support/layouts.hpp"
#include "plumb/schedule/generators.hpp"
#include "plumb/simulator/compare.hpp"
#include "simulator/support/models.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

struct Overheads {
  double naive = 0;  // all in per cent
  double relay = 0;
  double direct = 0;
  double cached = 0;
};

Overheads simulate_overheads(const Layout& layout, const DepthMap& depth, double unit_per_forward) {
  const Schedule schedule = layout.vp() == 1 ? one_f_one_b(layout) : interleaved(layout, layout.pp());
  const CostModel costs = unit_time(from_us(1000 * unit_per_forward, "unit"));
  Overheads overheads;
  for (const PolicyRow& row : compare_policies(schedule, depth, costs)) {
    CHECK(row.report.traffic_equals_formula);
    const double percent = 100 * row.overhead_over_standard;
    if (row.policy == Policy::naive) overheads.naive = percent;
    if (row.policy == Policy::relay) overheads.relay = percent;
    if (row.policy == Policy::direct) overheads.direct = percent;
    if (row.policy == Policy::cached) overheads.cached = percent;
  }
  return overheads;
}

// Each chunk closes exactly one block.
Overheads aligned(int pp, int vp, int microbatches, double unit) {
  const int chunks = pp * vp;
  return simulate_overheads(Layout(pp, vp, microbatches),
                            DepthMap(2 * chunks, 2, DepthMap::even_cuts(2 * chunks, chunks, chunks)), unit);
}

// 93 decoder layers of two sublayers, 12 to a block.
Overheads k3(int pp, int vp, int microbatches, double unit) {
  return simulate_overheads(Layout(pp, vp, microbatches), DepthMap(186, 24, DepthMap::even_cuts(186, 93, pp * vp)),
                            unit);
}

}  // namespace

TEST_CASE("interleaved, aligned: forwarding on arrival hides what the relay exposes", "[simulator]") {
  const Overheads light = aligned(8, 4, 32, 0.05);
  CHECK(light.naive == Approx(17.0).margin(1));
  CHECK(light.relay == Approx(4.2).margin(1));
  CHECK(light.direct == Approx(0.05).margin(0.1));
  CHECK(light.cached < 0.2);
  const Overheads heavy = aligned(8, 4, 32, 0.2);
  CHECK(heavy.naive == Approx(219).margin(6));
  CHECK(heavy.relay == Approx(28).margin(2));
  CHECK(heavy.direct == Approx(4.2).margin(1));
  CHECK(heavy.cached == Approx(1.5).margin(1));
  const Overheads wide = aligned(16, 2, 64, 0.05);
  CHECK(wide.naive == Approx(23.9).margin(2));
  CHECK(wide.relay == Approx(8.0).margin(1));
  CHECK(wide.direct == Approx(1.5).margin(1));
  CHECK(wide.cached < 0.2);
}

TEST_CASE("interleaved, K3: the cached policy costs next to nothing where the others cost up to 30 per cent",
          "[simulator]") {
  const Overheads eight = k3(8, 4, 32, 0.1);
  CHECK(eight.naive == Approx(6.6).margin(1));
  CHECK(eight.relay == Approx(2.2).margin(1));
  CHECK(eight.direct == Approx(0.05).margin(0.1));
  CHECK(eight.cached < 0.2);
  const Overheads sixteen = k3(16, 2, 64, 0.1);
  CHECK(sixteen.naive == Approx(6.2).margin(1));
  CHECK(sixteen.relay == Approx(4.2).margin(1));
  CHECK(sixteen.direct == Approx(1.7).margin(1));
  CHECK(sixteen.cached < 0.2);
  const Overheads slow = k3(16, 2, 64, 0.2);
  CHECK(slow.naive == Approx(28.9).margin(2));
  CHECK(slow.relay == Approx(8.3).margin(1));
  CHECK(slow.direct == Approx(16.9).margin(3));
  CHECK(slow.cached < 0.2);
  const Overheads deep = k3(16, 3, 64, 0.2);
  CHECK(deep.naive == Approx(29.7).margin(2));
  CHECK(deep.relay == Approx(6.3).margin(1));
  CHECK(deep.direct == Approx(19.6).margin(1));
  CHECK(deep.cached < 0.2);
}

TEST_CASE("1F1B: a cache saves no volume, forwarding on arrival hides it all the same", "[simulator]") {
  for (const Overheads& row : {aligned(8, 1, 32, 0.05), k3(8, 1, 32, 0.05)}) {
    CHECK(row.naive == Approx(13.5).margin(1));
    CHECK(row.relay == Approx(row.naive).margin(1e-9));
    CHECK(row.cached < 1);
  }
  const Overheads sixteen = k3(16, 1, 64, 0.05);
  CHECK(sixteen.naive == Approx(16.9).margin(1));
  CHECK(sixteen.relay == Approx(sixteen.naive).margin(1e-9));
  CHECK(sixteen.cached < 1);
}
