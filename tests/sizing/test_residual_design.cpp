// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <random>

#include "plumb/cache/volume.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/sizing/device_work.hpp"
#include "plumb/sizing/model_config.hpp"
#include "plumb/sizing/residual_io.hpp"
#include "plumb/sizing/residual_traffic.hpp"
#include "support/catch.hpp"

using namespace plumb;
using Catch::Matchers::Contains;

namespace {

double io_of(const char* name, int sublayers, int block) {
  return residual_io(parse_residual_design(name), sublayers, block).published;
}

double fused_of(const char* name, int sublayers, int block) {
  return residual_io(parse_residual_design(name), sublayers, block).fused;
}

double elementwise_bytes(const std::vector<Kernel>& kernels) {
  double sum = 0;
  for (const Kernel& kernel : kernels)
    sum += kernel.kind == KernelClass::elementwise ? kernel.bytes : 0;
  return sum;
}

}  // namespace

TEST_CASE("the name of a design is read back as the design", "[sizing]") {
  for (const ResidualDesign& design : all_residual_designs()) {
    CHECK(parse_residual_design(to_string(design)) == design);
  }
  for (const char* name : {"hc:1", "mhc:64", "hc:7+attnres-block"}) {
    CHECK(to_string(parse_residual_design(name)) == name);
  }
  CHECK(parse_residual_design("mhc:3").num_streams == 3);
}

TEST_CASE("names that are no design are refused with what is legal and the nearest", "[sizing]") {
  const auto refused = [](const char* name, const char* why) {
    INFO(name);
    CHECK_THROWS_WITH(parse_residual_design(name), Contains(why));
  };
  refused("full", "attnres-full");
  refused("denseformr", "did you mean 'denseformer'?");
  refused("hc", "did you mean 'hc:4'?");
  refused("MHC:4", "did you mean 'mhc:4'?");
  refused("mhc:4 ", "no number of streams");
  refused("hc:0", "has 0 streams, legal are 1 to 64");
  refused("hc:65", "has 65 streams");
  refused("hc:99999999999999999999", "legal are 1 to 64");
  for (const char* name : {"hc:", "hc:-1", "hc:+4", "hc:04", "hc:4x", "mhc: 4", "mhc:4.0"}) {
    refused(name, "legal are 1 to 64");
  }
  refused("mhc:4+attnres-full", "streams go with '+attnres-block' only");
  refused("denseformer:4x5", "--block-layers K");
  refused("", "legal are standard");
}

TEST_CASE("a design's traffic is that of its values times its tensors", "[sizing]") {
  const Layout layout(4, 2, 8);
  const int sublayers = 32;
  const std::vector<int> cuts = DepthMap::even_cuts(sublayers, 16, 8);
  const auto values = [&](const char* name, Policy policy) {
    const ResidualDesign design = parse_residual_design(name);
    const DepthMap depth(sublayers, sublayers_per_source(design, 8), cuts, lowered(design));
    CHECK(make_routing(layout, depth, policy).units() == expected_units(layout, depth, policy));
    return expected_units(layout, depth, policy);
  };
  CHECK(values("hc:4", Policy::standard) == 7);
  CHECK(values("deepnet", Policy::standard) == 7);
  // Chunks of two decoder layers: after chunk c the embedding and 2 (c + 1) outputs.
  CHECK(values("denseformer", Policy::naive) == 3 + 5 + 7 + 9 + 11 + 13 + 15);
  CHECK(values("muddformer", Policy::naive) == values("denseformer", Policy::naive));
  // Each of the outputs reaches the three other ranks, those of the last chunks fewer.
  CHECK(values("denseformer", Policy::cached) == 3 + 2 * (5 * 3 + 2 + 1));
  // Twice the sources, for every sublayer is one.
  CHECK(values("attnres-full", Policy::naive) == 5 + 9 + 13 + 17 + 21 + 25 + 29);
  CHECK(values("mhc:4+attnres-block", Policy::direct) == values("attnres-block", Policy::direct));
}

TEST_CASE("counts of every design equal their formulas in layouts at random", "[sizing]") {
  std::mt19937 random(5);
  const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  for (int trial = 0; trial < 30; ++trial) {
    const Placement placement = trial % 3 == 0 ? Placement::vee : Placement::loop;
    const Layout layout(1 + below(5), placement == Placement::vee ? 2 : 1 + below(4), 4, placement);
    const int sublayers = 2 * (1 + below(12));
    std::vector<int> cuts;
    for (int chunk = 1; chunk < layout.num_chunks(); ++chunk)
      cuts.push_back(below(sublayers + 1));
    cuts.push_back(sublayers);
    std::sort(cuts.begin(), cuts.end());
    for (const ResidualDesign& design : all_residual_designs()) {
      const DepthMap depth(sublayers, sublayers_per_source(design, 1 + below(sublayers)), cuts, lowered(design));
      for (const Policy policy : policies_of(lowered(design))) {
        INFO(trial << " " << to_string(design) << " " << to_string(policy));
        const ResidualTraffic traffic = residual_traffic(layout, depth, policy);
        CHECK(traffic.equals_formula());
        CHECK(traffic.peak_hop_units <= traffic.forward_units);
        // Nobody holds more than all sources and a partial per chunk, except the copies of naive.
        if (policy != Policy::naive) CHECK(traffic.resident_units <= depth.num_sources() + layout.vp());
      }
    }
  }
}

TEST_CASE("what is resident is what a rank made or received", "[sizing]") {
  const Layout layout(4, 2, 8);
  const std::vector<int> cuts = DepthMap::even_cuts(32, 16, 8);
  const auto resident = [&](const char* name, Policy policy) {
    const ResidualDesign design = parse_residual_design(name);
    const ResidualTraffic traffic =
        residual_traffic(layout, DepthMap(32, sublayers_per_source(design, 8), cuts, lowered(design)), policy);
    CHECK(traffic.equals_formula());
    return traffic.resident_units;
  };
  CHECK(resident("standard", Policy::standard) == 2);  // a hidden state received for each of its two chunks
  // The last rank ends up with the embedding and all 16 outputs; twice what came before its first chunk under naive.
  CHECK(resident("denseformer", Policy::cached) == 17);
  CHECK(resident("denseformer", Policy::direct) == 17);
  CHECK(resident("denseformer", Policy::naive) == (1 + 3 * 2 + 2) + (1 + 7 * 2 + 2));
  // Four blocks of two chunks: all sources, and the partial that reached its second chunk.
  CHECK(resident("attnres-block", Policy::cached) == 5 + 2);
  CHECK(policies_of(Residual::standard) == std::vector{Policy::standard});
}

TEST_CASE("reads and writes of the residual are those of the papers' tables", "[sizing]") {
  CHECK(io_of("standard", 128, 16) == 3);
  CHECK(io_of("deepnet", 128, 16) == 3);
  CHECK(io_of("mhc:4", 128, 16) == 34);
  CHECK(io_of("hc:4", 128, 16) == 34);
  CHECK(io_of("attnres-block", 128, 16) == 5.5);
  CHECK(io_of("attnres-full", 128, 16) == 24);
  // By hand for four decoder layers: averages over 2, 3, 4 and 5 rows, each written; 3 rows per sublayer beside them.
  CHECK(io_of("denseformer", 8, 2) == 3 + (2 + 3 + 4 + 5 + 4) / 8.0);
  CHECK(io_of("muddformer", 8, 2) == 3 + 4 * (2 + 3 + 4 + 5 + 4) / 8.0);
}

TEST_CASE("a fused kernel needs what counting its rows one by one gives", "[sizing]") {
  CHECK(fused_of("standard", 128, 16) == 4);
  CHECK(fused_of("hc:1", 128, 16) == 4);
  CHECK(fused_of("mhc:4", 128, 16) == 10);
  // Two blocks of three sublayers. The first: b_0 read three times, three inputs written, the output of the first read
  // once to be merged, and two additions of two reads and a write. The second sees two blocks, read by each.
  CHECK(fused_of("attnres-block", 6, 3) == (3 + 3 + 1 + 6 + 6 + 3 + 1 + 6) / 6.0);
  CHECK(fused_of("hc:1+attnres-block", 6, 3) == fused_of("attnres-block", 6, 3));
  // With two streams all rows but inputs and outputs are two; the first addition reads one row of a partial of one.
  CHECK(fused_of("mhc:2+attnres-block", 6, 3) == (6 + 3 + 1 + (1 + 1 + 2) + (2 + 1 + 2) + 12 + 3 + 1 + 9) / 6.0);
  // One sublayer per block: every output is a block as it is.
  CHECK(fused_of("attnres-block", 3, 1) == (2 + 3 + 4) / 3.0);
  // Three sublayers and no batch: b_0; b_0, 1; b_0, 1, 2; inputs written. Batches of two or three save nothing yet.
  CHECK(fused_of("attnres-full", 3, 1) == (2 + 3 + 4) / 3.0);
  // Two decoder layers: older rows 1 and 2.
  CHECK(fused_of("denseformer", 4, 2) == (9 + 1 + 9 + 2) / 4.0);
  CHECK(fused_of("muddformer", 4, 2) == (11 + 1 + 11 + 2) / 4.0);
}

TEST_CASE("batches of readers make many sources cheaper for a fused kernel", "[sizing]") {
  // L = 128: one by one a sublayer reads 64.5 sources in the mean and writes its input.
  const double full = fused_of("attnres-full", 128, 16);
  CHECK(full < 65.5 / 4);
  CHECK(full > 12);  // about sqrt(L) rows at the least: L / 2g of older ones and g / 2 of the group
  // The fused kernel of block attention writes the input, which the paper's 5.5 leaves out, and is still near it.
  CHECK(fused_of("attnres-block", 128, 16) == Approx(5.914).margin(0.001));
  for (const int block : {1, 2, 3, 5, 8, 64, 128}) {
    CHECK(fused_of("mhc:2+attnres-block", 128, block) > fused_of("attnres-block", 128, block));
  }
  CHECK_THROWS_WITH(residual_io(parse_residual_design("attnres-block"), 8, 9), Contains("legal are 1 to 8"));
  CHECK_THROWS_WITH(residual_io(parse_residual_design("denseformer"), 7, 1), Contains("the nearest is 8"));
}

TEST_CASE("a sublayer's kernels move the rows of its design", "[sizing]") {
  const ModelShape shape = load_shape("kimi-linear-48b");
  const int layer = 4;
  const auto bytes = [&](const char* name, int block, bool backward) {
    const Batch batch{.tokens = 1024,
                      .sequence = 1024,
                      .degrees = {.tp = 2},
                      .block_sublayers = block,
                      .residual = parse_residual_design(name)};
    const DeviceWork work = attention_work(shape, layer, batch);
    const double row = 512.0 * shape.hidden * 2;
    return elementwise_bytes(backward ? work.backward_input : work.forward) / row;
  };
  const double plain = bytes("standard", 0, false);
  const double plain_backward = bytes("standard", 0, true);
  CHECK(bytes("deepnet", 0, false) == plain);
  CHECK(bytes("mhc:4", 0, false) - plain == Approx(4 * 4 + 2 - 3));
  CHECK(bytes("mhc:4", 0, true) - plain_backward == Approx(6 * 4 + 3 - 3));
  // Four layers and the embedding are read, one average is written.
  CHECK(bytes("denseformer", 2, false) - plain == Approx(5 + 1));
  CHECK(bytes("denseformer", 0, true) - plain_backward == Approx(1 + 5 * (1 + 2 * 2)));
  CHECK(bytes("muddformer", 0, false) - plain == Approx(5 + 4 + 2 * 2));
  // Block 2 of 6 sublayers sees two sources; m rows each with m streams.
  CHECK(bytes("attnres-block", 6, false) - plain == Approx(2 / 6.0 + 2));
  CHECK(bytes("mhc:4+attnres-block", 6, false) - bytes("mhc:4", 0, false) == Approx(4 * (2 / 6.0 + 2)));
}
