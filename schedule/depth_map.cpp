// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/depth_map.hpp"

#include <algorithm>
#include <cassert>

#include <fmt/format.h>

#include "limits.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

constexpr int max_sublayers = 1 << 20;

void require_sublayers(int sublayers) {
  if (sublayers < 1 || sublayers > max_sublayers) {
    throw InputError(fmt::format("L (sublayers) is {}: it must be 1..{}", sublayers, max_sublayers));
  }
}

void require_chunks(std::int64_t chunks) {
  if (chunks < 1 || chunks > max_chunks) {
    throw InputError(fmt::format("the number of chunks is {}: it must be 1..{}", chunks, max_chunks));
  }
}

void require_cuts(int sublayers, const std::vector<int>& cuts) {
  require_chunks(static_cast<std::int64_t>(cuts.size()));
  int before = 0;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (cuts[i] < before) {
      const std::string lowest = i == 0 ? "0" : fmt::format("the cut before it, {}", before);
      throw InputError(fmt::format("cut {} is {}: cuts must not decrease, it must be at least {}", i, cuts[i], lowest));
    }
    if (cuts[i] > sublayers) {
      throw InputError(fmt::format("cut {} is {}, beyond the model: it must be at most L = {}", i, cuts[i], sublayers));
    }
    before = cuts[i];
  }
  if (before != sublayers) {
    throw InputError(
        fmt::format("the last cut (cut {}) is {}: it must equal L = {}, or the sublayers after it are lost",
                    cuts.size() - 1, before, sublayers));
  }
}

}  // namespace

std::string_view to_string(Residual residual) {
  switch (residual) {
    case Residual::standard:
      return "standard";
    case Residual::attnres_block:
      return "attnres-block";
    case Residual::attnres_full:
      return "attnres-full";
  }
  return "?";
}

DepthMap::DepthMap(int sublayers, int block, std::vector<int> cuts, Residual residual)
    : sublayers_(sublayers), block_(block), residual_(residual), cuts_(std::move(cuts)) {
  require_sublayers(sublayers);
  if (residual == Residual::standard) {
    block_ = sublayers;  // ignored; one value, so that equal maps compare equal
  } else if (residual == Residual::attnres_full && block != 1) {
    throw InputError(fmt::format("S (sublayers per block) is {}: {} needs S = 1", block, to_string(residual)));
  } else if (block < 1 || block > sublayers) {
    throw InputError(fmt::format("S (sublayers per block) is {}: it must be 1..L, here 1..{}", block, sublayers));
  }
  require_cuts(sublayers, cuts_);

  first_closed_.assign(cuts_.size() + 1, 0);
  if (residual == Residual::standard) return;
  num_blocks_ = (sublayers - 1) / block_ + 1;
  closer_.assign(static_cast<std::size_t>(num_blocks_) + 1, 0);
  for (std::size_t chunk = 0; chunk < cuts_.size(); ++chunk) {
    // Blocks that have ended by this cut; the last one may be short, so the end of the model counts as its end.
    const int ended = cuts_[chunk] == sublayers ? num_blocks_ : cuts_[chunk] / block_;
    first_closed_[chunk + 1] = ended + 1;
    for (int block_id = first_closed_[chunk]; block_id <= ended; ++block_id) {
      closer_[static_cast<std::size_t>(block_id)] = static_cast<std::int32_t>(chunk);
    }
  }
}

std::vector<int> DepthMap::even_cuts(int sublayers, int units, int chunks) {
  require_sublayers(sublayers);
  require_chunks(chunks);
  if (units < 1 || sublayers % units != 0) {
    throw InputError(
        fmt::format("{} sublayers do not fall into {} equal units: the units must divide L", sublayers, units));
  }
  std::vector<int> cuts;
  cuts.reserve(static_cast<std::size_t>(chunks));
  int end = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    end += units / chunks + (chunk < units % chunks ? 1 : 0);
    cuts.push_back(end * (sublayers / units));
  }
  return cuts;
}

SublayerRange DepthMap::sublayers_of(ChunkId chunk) const {
  assert(chunk.value >= 0 && chunk.value < num_chunks());
  return {chunk.value == 0 ? 0 : cuts_[chunk.index() - 1], cuts_[chunk.index()]};
}

SublayerRange DepthMap::sublayers_of_block(BlockId block) const {
  assert(block.value >= 0 && block.value < num_sources());
  if (block.value == 0) return {};
  // block * S may pass L (a short last block) but not overflow: it is below L + S <= 2 L.
  return {(block.value - 1) * block_, std::min(block.value * block_, sublayers_)};
}

ChunkId DepthMap::closer(BlockId block) const {
  assert(block.value >= 0 && block.value < num_sources());
  return ChunkId(closer_[block.index()]);
}

BlockId DepthMap::first_closed(ChunkId chunk) const {
  assert(chunk.value >= 0 && chunk.value < num_chunks());
  return BlockId(first_closed_[chunk.index()]);
}

BlockId DepthMap::end_closed(ChunkId chunk) const {
  assert(chunk.value >= 0 && chunk.value < num_chunks());
  return BlockId(first_closed_[chunk.index() + 1]);
}

bool DepthMap::partial_after(ChunkId chunk) const {
  assert(chunk.value >= 0 && chunk.value < num_chunks());
  if (chunk.value == num_chunks() - 1) return false;
  if (residual_ == Residual::standard) return true;
  const int cut = cuts_[chunk.index()];
  return cut % block_ != 0 && cut != sublayers_;
}

bool DepthMap::reads_sources(ChunkId chunk) const {
  if (residual_ == Residual::standard) return false;
  return chunk.value == num_chunks() - 1 || !sublayers_of(chunk).empty();
}

bool DepthMap::reads(ChunkId chunk, BlockId block) const { return closer(block) < chunk && reads_sources(chunk); }

}  // namespace plumb
