// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/layout.hpp"

#include <cassert>

#include <fmt/format.h>

#include "limits.hpp"
#include "plumb/schedule/error.hpp"
#include "quote.hpp"

namespace plumb {
namespace {

constexpr int max_pp = 4096;
constexpr int max_vp = 1024;
constexpr std::int64_t max_chunk_runs = std::int64_t{1} << 28;

void require_range(std::string_view what, int value, int max) {
  if (value < 1 || value > max) {
    throw InputError(fmt::format("{} is {}: it must be 1..{}", what, value, max));
  }
}

}  // namespace

std::string_view to_string(Placement placement) { return placement == Placement::loop ? "loop" : "vee"; }

Placement parse_placement(std::string_view text) {
  if (text == "loop") return Placement::loop;
  if (text == "vee") return Placement::vee;
  throw InputError(fmt::format("unknown placement {}: it is loop or vee", quoted(text)));
}

Layout::Layout(int pp, int vp, int microbatches, Placement placement)
    : pp_(pp), vp_(vp), microbatches_(microbatches), placement_(placement) {
  require_range("P (pipeline ranks)", pp, max_pp);
  require_range("V (virtual stages per rank)", vp, max_vp);
  if (pp * vp > max_chunks) {
    throw InputError(fmt::format("P={} times V={} makes {} chunks: at most {} are possible, V <= {} with this P", pp,
                                 vp, pp * vp, max_chunks, max_chunks / pp));
  }
  require_range("M (microbatches)", microbatches, max_microbatches);
  const std::int64_t chunk_runs = std::int64_t{pp} * vp * microbatches;
  if (chunk_runs > max_chunk_runs) {
    throw InputError(fmt::format("P={} V={} M={} runs chunks {} times in a step: at most {} are possible, M <= {} here",
                                 pp, vp, microbatches, chunk_runs, max_chunk_runs, max_chunk_runs / (pp * vp)));
  }
}

RankId Layout::rank_of(ChunkId chunk) const {
  assert(chunk.value >= 0 && chunk.value < num_chunks());
  const int place = chunk.value % pp_;
  const bool runs_back = placement_ == Placement::vee && chunk.value / pp_ % 2 == 1;
  return RankId(runs_back ? pp_ - 1 - place : place);
}

VirtualStage Layout::virtual_stage_of(ChunkId chunk) const {
  assert(chunk.value >= 0 && chunk.value < num_chunks());
  return VirtualStage(chunk.value / pp_);
}

ChunkId Layout::chunk_of(RankId rank, VirtualStage stage) const {
  assert(rank.value >= 0 && rank.value < pp_ && stage.value >= 0 && stage.value < vp_);
  const bool runs_back = placement_ == Placement::vee && stage.value % 2 == 1;
  return ChunkId(stage.value * pp_ + (runs_back ? pp_ - 1 - rank.value : rank.value));
}

std::vector<ChunkId> Layout::chunks_on(RankId rank) const {
  std::vector<ChunkId> chunks;
  chunks.reserve(static_cast<std::size_t>(vp_));
  for (int stage = 0; stage < vp_; ++stage) {
    chunks.push_back(chunk_of(rank, VirtualStage(stage)));
  }
  return chunks;
}

ChunkId Layout::next_chunk_on(RankId rank, ChunkId chunk) const {
  assert(chunk.value >= -1 && chunk.value < num_chunks());
  // Each run of P chunks visits each rank once, so the answer is in this run or in the next.
  VirtualStage stage(chunk.value < 0 ? 0 : chunk.value / pp_);
  if (chunk_of(rank, stage) > chunk) return chunk_of(rank, stage);
  stage = stage.next();
  return stage.value < vp_ ? chunk_of(rank, stage) : ChunkId(num_chunks());
}

Layout Layout::with_microbatches(int microbatches) const { return Layout(pp_, vp_, microbatches, placement_); }

}  // namespace plumb
