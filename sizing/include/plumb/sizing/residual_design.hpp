// SPDX-License-Identifier: Apache-2.0
//
// residual_design.hpp: the ways in which published models carry what earlier layers computed, as payloads: what crosses
// a boundary between chunks and what is resident.
//
// A design is lowered onto the DepthMap and Routing of depth attention: its values are b_0..b_N and a partial, or one
// hidden state per cut, and each value is `num_streams` tensors [tokens, d]. So the counts, formulas and checks of
// volume.hpp hold for every design, in values. It is NOT an implementation: only three designs are run, see is_run();
// what the others cost in memory traffic says residual_io.hpp. docs/residuals.md has the reading of each paper.
// Plain values; pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plumb/schedule/depth_map.hpp"

namespace plumb {

enum class ResidualKind : std::uint8_t {
  standard,
  deepnet,       // arXiv 2203.00555: one tensor, scaled before the addition
  denseformer,   // arXiv 2402.02622: fixed averages over the outputs of all decoder layers
  muddformer,    // arXiv 2502.12170: four averages of them (query, key, value, residual), weights made per token
  attnres_full,  // arXiv 2603.15031, every sublayer's output is a source
  attnres_block  // the same over sums of the outputs of a block
};

enum class StreamKind : std::uint8_t {
  none,
  hyper,             // Hyper-Connections, arXiv 2409.19606
  hyper_constrained  // mHC, arXiv 2512.24880: the same tensors, mixed by doubly stochastic matrices
};

inline constexpr int max_residual_streams = 64;

struct ResidualDesign {
  ResidualKind kind = ResidualKind::attnres_block;
  StreamKind streams = StreamKind::none;  // with standard or attnres_block only
  int num_streams = 1;                    // m: tensors per value; 1 without streams
  friend bool operator==(const ResidualDesign&, const ResidualDesign&) = default;
};

// "standard", "hc:4", "mhc:4+attnres-block", ...
std::string to_string(const ResidualDesign& design);

// The inverse. Throws InputError with what is legal, and the nearest of it.
ResidualDesign parse_residual_design(std::string_view text);

// One of each: what is set side by side where nothing else is said. m is 4, as in the papers.
std::vector<ResidualDesign> all_residual_designs();

// How Routing and DepthMap see it.
Residual lowered(const ResidualDesign& design);

// S of its DepthMap: sublayers whose outputs make one source. `block` is what --block says for attnres_block.
int sublayers_per_source(const ResidualDesign& design, int block);

// Whether the block size is the user's to choose.
bool takes_block_size(const ResidualDesign& design);

// Whether the runtime runs it, not only its traffic is counted.
bool is_run(const ResidualDesign& design);

// "one tensor per hop", "4 tensors per hop", "the output of every decoder layer", ...: what a boundary is about.
std::string payload_text(const ResidualDesign& design);

// Throws InputError unless a model of that many sublayers can have it: DenseFormer and MUDDFormer average over decoder
// layers, which are two sublayers each.
void require_depth(const ResidualDesign& design, int sublayers);

}  // namespace plumb
