// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <string>

#include "plumb/kernels/depth_config.hpp"
#include "support/catch.hpp"

using namespace plumb;

namespace {

DepthConfig legal() {
  DepthConfig config;
  config.num_sublayers = 10;
  config.block_length = 4;
  config.width = 8;
  return config;
}

std::string refusal(const DepthConfig& config) {
  try {
    validate(config);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("an illegal depth configuration is refused with the nearest legal value", "[kernels]") {
  CHECK(refusal(legal()).empty());
  DepthConfig config = legal();
  SECTION("block length") {
    config.block_length = 0;
    CHECK(refusal(config) == "depth configuration: block length (in sublayers) is 0; legal: 1..10, nearest 1");
    config.block_length = 11;
    CHECK(refusal(config).ends_with("nearest 10"));
    config.block_length = -3;
    CHECK(refusal(config).ends_with("nearest 1"));
  }
  SECTION("mode") {
    config.mode = static_cast<DepthMode>(7);
    CHECK(refusal(config) == "depth configuration: mode number 7 does not exist; legal: block, full");
    CHECK_THROWS_WITH(depth_mode_from_name("blocks"),
                      "depth configuration: mode 'blocks' does not exist; legal: block, full");
    CHECK(depth_mode_from_name("block") == DepthMode::block);
    CHECK(depth_mode_from_name("full") == DepthMode::full);
  }
  SECTION("full mode with blocks") {
    config.mode = DepthMode::full;
    CHECK(refusal(config).ends_with("but the block length is 4; legal: 1"));
    config.block_length = 1;
    CHECK(refusal(config).empty());
    config.schedule_length = 0;
    CHECK_FALSE(refusal(config).empty());
  }
  SECTION("sizes") {
    config.num_sublayers = 0;
    CHECK_FALSE(refusal(config).empty());
    config = legal();
    config.width = -1;
    CHECK_FALSE(refusal(config).empty());
  }
  SECTION("eps and spread") {
    config.eps = 0;
    CHECK_FALSE(refusal(config).empty());
    config = legal();
    config.query_stddev = -0.1;
    CHECK_FALSE(refusal(config).empty());
  }
  SECTION("storage") {
    config.storage = static_cast<Storage>(9);
    CHECK_FALSE(refusal(config).empty());
    CHECK_THROWS_AS(bytes_per_element(config.storage), std::invalid_argument);
    CHECK_THROWS_AS(gradient_storage(config.storage), std::invalid_argument);
    CHECK_THROWS_AS(to_string(config.storage), std::invalid_argument);
  }
}

TEST_CASE("storage formats know their bytes and their gradients", "[kernels]") {
  CHECK(bytes_per_element(Storage::fp32) == 4);
  CHECK(bytes_per_element(Storage::fp64) == 8);
  CHECK(gradient_storage(Storage::fp32) == Storage::fp32);
  CHECK(gradient_storage(Storage::fp64) == Storage::fp64);
  CHECK(to_string(Storage::fp64) == "fp64");
  for (const Storage half : {Storage::bf16, Storage::fp16}) {
    CHECK(bytes_per_element(half) == 2);
    CHECK(gradient_storage(half) == Storage::fp32);
  }
  CHECK(to_string(Storage::bf16) == "bf16");
  CHECK(to_string(Storage::fp16) == "fp16");
}

TEST_CASE("a chunk reads the blocks closed before it and closes those that end in it", "[kernels]") {
  const DepthConfig config = legal();  // blocks of sublayers 0..3, 4..7, 8..9
  const auto check = [&](int first, int count, ChunkDepth expected) {
    INFO("chunk " << first << " + " << count);
    const ChunkDepth depth = chunk_depth(config, {first, count, false});
    CHECK(depth.num_sources == expected.num_sources);
    CHECK(depth.num_closed == expected.num_closed);
    CHECK(depth.partial_in == expected.partial_in);
    CHECK(depth.partial_out == expected.partial_out);
  };
  check(0, 10, {1, 3, false, false});
  check(0, 4, {1, 1, false, false});
  check(0, 5, {1, 1, false, true});
  check(0, 0, {1, 0, false, false});
  check(2, 1, {1, 0, true, true});
  check(2, 0, {1, 0, true, true});
  check(3, 6, {1, 2, true, true});
  check(9, 1, {3, 1, true, false});
  check(10, 0, {4, 0, false, false});
  CHECK(num_blocks(config) == 3);
}

TEST_CASE("a chunk outside the model or a head before its end is refused", "[kernels]") {
  const DepthConfig config = legal();
  CHECK_THROWS_AS(chunk_depth(config, {-1, 2, false}), std::invalid_argument);
  CHECK_THROWS_AS(chunk_depth(config, {8, 3, false}), std::invalid_argument);
  CHECK_THROWS_AS(chunk_depth(config, {0, 4, true}), std::invalid_argument);
  CHECK_NOTHROW(chunk_depth(config, {10, 0, true}));
}
