// SPDX-License-Identifier: Apache-2.0
#include "plumb/kernels/depth_config.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace plumb {

namespace {

constexpr int kMaxSublayers = 1 << 20;
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument("depth configuration: " + message); }

void check_range(const char* what, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) {
    refuse(std::string(what) + " is " + std::to_string(value) + "; legal: " + std::to_string(low) + ".." +
           std::to_string(high) + ", nearest " + std::to_string(std::clamp(value, low, high)));
  }
}

void check_enumerator(const char* what, int value, int count, const char* legal) {
  if (value < 0 || value >= count) {
    refuse(std::string(what) + " number " + std::to_string(value) + " does not exist; legal: " + legal);
  }
}

}  // namespace

DepthMode depth_mode_from_name(std::string_view name) {
  if (name == "block") {
    return DepthMode::block;
  }
  if (name == "full") {
    return DepthMode::full;
  }
  refuse("mode '" + std::string(name) + "' does not exist; legal: block, full");
}

void validate(const DepthConfig& config) {
  check_enumerator("mode", static_cast<int>(config.mode), 2, "block, full");
  check_enumerator("storage format", static_cast<int>(config.storage), 4, "fp32, fp64, bf16, fp16");
  check_enumerator("query initialisation", static_cast<int>(config.query_init), 2, "zero, normal");
  check_range("number of sublayers", config.num_sublayers, 1, kMaxSublayers);
  check_range("block length (in sublayers)", config.block_length, 1, config.num_sublayers);
  if (config.mode == DepthMode::full && config.block_length != 1) {
    refuse("mode full has one sublayer per block, but the block length is " + std::to_string(config.block_length) +
           "; legal: 1");
  }
  check_range("schedule block length (in sublayers)", config.schedule_length, 1, kMaxSublayers);
  check_range("width", config.width, 1, kMaxWidth);
  if (!(config.eps > 0.0) || !std::isfinite(config.eps)) {
    refuse("eps is " + std::to_string(config.eps) + "; legal: any positive number, by default 1e-6");
  }
  if (!(config.query_stddev >= 0.0) || !std::isfinite(config.query_stddev)) {
    refuse("query standard deviation is " + std::to_string(config.query_stddev) +
           "; legal: zero or a positive number, by default 0.02");
  }
}

int num_blocks(const DepthConfig& config) {
  return (config.num_sublayers + config.block_length - 1) / config.block_length;
}

std::int64_t num_depth_parameters(const DepthConfig& config) {
  return 2 * config.width * (config.num_sublayers + (config.head_aggregate ? 1 : 0));
}

ChunkDepth chunk_depth(const DepthConfig& config, const ChunkRange& chunk) {
  const int last = config.num_sublayers;
  check_range("first sublayer of the chunk", chunk.first, 0, last);
  check_range("number of sublayers of the chunk", chunk.count, 0, last - chunk.first);
  const int end = chunk.first + chunk.count;
  if (chunk.has_head && end != last) {
    refuse("the head stands behind sublayer " + std::to_string(last - 1) + ", but its chunk ends before sublayer " +
           std::to_string(end));
  }
  // A position is a cut before that sublayer. Blocks closed there: b_0, and every block that ends at or before it.
  const auto closed_before = [&](int position) {
    return 1 + (position == last ? num_blocks(config) : position / config.block_length);
  };
  const auto inside_block = [&](int position) { return position != last && position % config.block_length != 0; };
  return {.num_sources = closed_before(chunk.first),
          .num_closed = closed_before(end) - closed_before(chunk.first),
          .partial_in = inside_block(chunk.first),
          .partial_out = inside_block(end)};
}

}  // namespace plumb
