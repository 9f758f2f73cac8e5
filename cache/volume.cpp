// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/volume.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "plumb/schedule/invariant.hpp"

namespace plumb {
namespace {

void require_same_chunks(const Layout& layout, const DepthMap& depth) {
  if (depth.num_chunks() == layout.num_chunks()) return;
  throw InputError(fmt::format("the cuts make {} chunks, but P={} times V={} is {}: give {} cuts", depth.num_chunks(),
                               layout.pp(), layout.vp(), layout.num_chunks(), layout.num_chunks()));
}

// The cut after `chunk` joins two ranks; under vee the two chunks at a turn share one, with P = 1 all do.
bool crosses_ranks(const Layout& layout, ChunkId chunk) {
  return layout.rank_of(chunk) != layout.rank_of(chunk.next());
}

bool is_aligned(const DepthMap& depth) {
  const int chunks = depth.num_chunks();
  if (depth.num_blocks() == 0 || depth.num_blocks() % chunks != 0) return false;
  const int blocks_per_chunk = depth.num_blocks() / chunks;
  for (ChunkId chunk; chunk.value < chunks; chunk = chunk.next()) {
    const int closed = depth.num_closed(chunk) - (chunk.value == 0 ? 1 : 0);  // without the embedding
    if (closed != blocks_per_chunk) return false;
  }
  return true;
}

// Each block reaches every other rank that hosts a later chunk, once. Chunks come in runs of P that visit every rank
// once (both placements), so a block closed at c before the last run has all P-1 other ranks ahead of it, and one
// closed in the last run has the C-1-c ranks that still follow: min(P-1, C-1-c) either way.
std::int64_t exact_minimum(const Layout& layout, const DepthMap& depth) {
  const int chunks = layout.num_chunks();
  std::int64_t units = 0;
  for (BlockId block; block.value < depth.num_sources(); block = block.next()) {
    units += std::min(layout.pp() - 1, chunks - 1 - depth.closer(block).value);
  }
  for (ChunkId chunk; chunk.value + 1 < chunks; chunk = chunk.next()) {
    if (depth.partial_after(chunk) && crosses_ranks(layout, chunk)) ++units;
  }
  return units;
}

std::int64_t naive_units(const Layout& layout, const DepthMap& depth) {
  std::int64_t units = 0;
  for (ChunkId chunk; chunk.value + 1 < layout.num_chunks(); chunk = chunk.next()) {
    if (!crosses_ranks(layout, chunk)) continue;
    units += depth.end_closed(chunk).value + (depth.partial_after(chunk) ? 1 : 0);
  }
  return units;
}

}  // namespace

VolumeFormula volume_formula(const Layout& layout, const DepthMap& depth) {
  require_same_chunks(layout, depth);
  const double pp = layout.pp();
  const double vp = layout.vp();
  const double chunks = layout.num_chunks();
  VolumeFormula formula;
  formula.aligned = is_aligned(depth);
  formula.blocks_per_chunk = depth.num_blocks() / chunks;
  formula.naive_paper_units = chunks * (chunks - 1) / 2 * formula.blocks_per_chunk;
  formula.cached_paper_units = (pp * (pp - 1) / 2 + (vp - 1) * pp * pp) * formula.blocks_per_chunk;
  formula.exact_minimum_units = exact_minimum(layout, depth);
  return formula;
}

std::int64_t expected_units(const Layout& layout, const DepthMap& depth, Policy policy) {
  require_same_chunks(layout, depth);
  if ((policy == Policy::standard) != (depth.residual() == Residual::standard)) {
    throw InputError(
        fmt::format("cache {} does not fit residual {}: standard goes with standard, the others with blocks",
                    to_string(policy), to_string(depth.residual())));
  }
  // With a standard residual there are no blocks and every cut is open, so the minimum is the number of hops.
  return policy == Policy::naive ? naive_units(layout, depth) : exact_minimum(layout, depth);
}

PolicyVolume count_volume(const Routing& routing, const Layout& layout) {
  const bool one_row_per_message = routing.policy == Policy::direct;
  PolicyVolume volume;
  if (!one_row_per_message) {
    for (ChunkId chunk; chunk.value + 1 < layout.num_chunks(); chunk = chunk.next()) {
      volume.hops.push_back({chunk, chunk.next(), layout.rank_of(chunk), layout.rank_of(chunk.next())});
    }
  }
  for (const Transfer& transfer : routing.transfers) {
    if (one_row_per_message) {
      volume.hops.push_back({transfer.from_chunk, transfer.to_chunk, transfer.from, transfer.to});
    }
    const std::size_t row = one_row_per_message ? volume.hops.size() - 1 : transfer.from_chunk.index();
    require(row < volume.hops.size() && transfer.to_chunk == volume.hops[row].to_chunk, [&] {
      return fmt::format("volume: under {} a transfer joins chunks {} and {}, which are not neighbours",
                         to_string(routing.policy), transfer.from_chunk.value, transfer.to_chunk.value);
    });
    HopVolume& hop = volume.hops[row];
    hop.units += transfer.units();
    if (transfer.lane == MessageLane::urgent) hop.urgent_units += transfer.units();
    volume.units += transfer.units();
    if (transfer.partial) ++volume.partial_units;
    for (const HoldingId id : transfer.holdings) {
      const bool embedding = routing.holdings[id.index()].block.value == 0;
      ++(embedding ? volume.embedding_units : volume.block_units);
    }
  }
  for (const HopVolume& hop : volume.hops) {
    volume.peak_hop_units = std::max(volume.peak_hop_units, hop.units);
  }
  return volume;
}

}  // namespace plumb
