// SPDX-License-Identifier: Apache-2.0
//
// volume.hpp: how many [tokens, d] tensors ("units") one microbatch sends, by closed expression and by counting a
// routing.
//
// The formulas look only at the cuts and the layout; they share nothing with routing.hpp, so that agreement means
// something. All counts are forward, per microbatch; the backward mirrors them. The paper's formulas leave out the
// embedding b_0 and the open partials; `exact` ones include both.
#pragma once

#include <cstdint>
#include <vector>

#include "plumb/cache/routing.hpp"

namespace plumb {

struct VolumeFormula {
  bool aligned = false;           // every chunk closes the same whole number Np >= 1 of blocks
  double blocks_per_chunk = 0;    // Np = N / C, a fraction when not aligned: then the paper's formulas are estimates
  double naive_paper_units = 0;   // C(C-1)/2 * Np
  double cached_paper_units = 0;  // P(P-1)/2 * Np + (V-1) P^2 * Np
  // sum over blocks n of |{rank(k): k > c(n)} \ {rank(c(n))}| + cuts inside a block between different ranks.
  std::int64_t exact_minimum_units = 0;
};

VolumeFormula volume_formula(const Layout& layout, const DepthMap& depth);

// What `policy` sends per microbatch, as a closed expression over the cuts: naive = sum over hops between ranks of the
// closed blocks and the open partial; relay, cached, direct = the exact minimum; standard = hops between different
// ranks.
std::int64_t expected_units(const Layout& layout, const DepthMap& depth, Policy policy);

struct HopVolume {
  ChunkId from_chunk;
  ChunkId to_chunk;
  RankId from_rank;
  RankId to_rank;
  std::int64_t units = 0;
  std::int64_t urgent_units = 0;
};

struct PolicyVolume {
  std::int64_t units = 0;
  std::int64_t block_units = 0;      // b_1..b_N
  std::int64_t embedding_units = 0;  // b_0
  std::int64_t partial_units = 0;
  std::int64_t peak_hop_units = 0;
  // naive, relay, cached, standard: one row per neighbouring pair of chunks, hops without units listed with 0.
  // direct: one row per message.
  std::vector<HopVolume> hops;
};

// Counts a routing's transfers.
PolicyVolume count_volume(const Routing& routing, const Layout& layout);

}  // namespace plumb
