// SPDX-License-Identifier: Apache-2.0
#include "train_lm/lm_config.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb::lm {

namespace {

void require_range(std::string_view field, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) {
    throw InputError(
        fmt::format("{} {}: not in {}..{}; nearest: {}", field, value, low, high, std::clamp(value, low, high)));
  }
}

}  // namespace

std::optional<Storage> storage_from_name(std::string_view name) {
  for (const Storage storage : {Storage::fp32, Storage::fp64, Storage::bf16, Storage::fp16}) {
    if (to_string(storage) == name) {
      return storage;
    }
  }
  return std::nullopt;
}

void validate(const LmConfig& config) {
  require_range("sublayers", config.num_sublayers, 1, 4096);
  require_range("hidden", config.width, 2, 16384);
  require_range("heads", config.heads, 1, config.width / 2);
  if (config.width % (2 * config.heads) != 0) {
    std::int64_t heads = config.heads;
    while (config.width % (2 * heads) != 0 && heads > 1) {
      --heads;
    }
    const std::string nearest =
        config.width % (2 * heads) == 0 ? fmt::format("heads {}", heads) : fmt::format("hidden {}", config.width + 1);
    throw InputError(
        fmt::format("heads {}: hidden {} is not a multiple of 2 x heads (rotary positions pair the channels); "
                    "nearest: {}",
                    config.heads, config.width, nearest));
  }
  require_range("seq", config.sequence, 1, 65536);
  require_range("sequences per microbatch", config.sequences, 1, 65536);
  require_range("tokens", config.tokens(), 1, 1 << 20);
  if (!(config.eps > 0 && config.eps < 1)) {
    throw InputError(fmt::format("eps {}: must lie between 0 and 1; the default is 1e-6", config.eps));
  }
  switch (config.residual) {
    case Residual::standard:
      break;
    case Residual::attnres_block:
      require_range("block", config.block_sublayers, 1, config.num_sublayers);
      break;
    case Residual::attnres_full:
      require_range("block (attnres-full)", config.block_sublayers, 1, 1);
      break;
    default:
      throw InputError("residual: unknown mode; one of standard, attnres-block, attnres-full");
  }
}

DepthConfig depth_config(const LmConfig& config) {
  DepthConfig depth;
  depth.mode = config.residual == Residual::attnres_full ? DepthMode::full : DepthMode::block;
  depth.num_sublayers = config.num_sublayers;
  depth.block_length = config.block_sublayers;
  depth.width = config.width;
  depth.eps = config.eps;
  depth.storage = config.dtype;
  depth.query_init = config.query_init;
  depth.seed = config.seed;
  return depth;
}

}  // namespace plumb::lm
