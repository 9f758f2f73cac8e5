// SPDX-License-Identifier: Apache-2.0
//
// megatron_layout.hpp: Megatron-LM's layout string (--pipeline-model-parallel-layout), in and out.
//
// "Et*3|(tt|)*29,m|L": E embedding, t decoder layer, m multi-token-prediction layer, L loss; | ends a stage, x*n
// repeats a letter or |, (..)*n a group, commas only separate. Stage i of S is chunk i, on rank i mod P, so V = S / P.
// Depth counts in sublayers here: two per decoder layer. An m layer stands behind the depth (no block is made of it)
// and counts for nothing in cuts; it is a cost of its stage. The head reads in the last chunk, also where L stands
// earlier. Plain data.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plumb {

struct MegatronStage {
  bool embedding = false;
  int decoder_layers = 0;
  int mtp_layers = 0;
  bool loss = false;
  friend bool operator==(const MegatronStage&, const MegatronStage&) = default;
};

struct MegatronLayout {
  std::vector<MegatronStage> stages;  // as written: at most 65536, of at most 2^19 decoder layers in all

  int decoder_layers() const;
  int mtp_layers() const;

  // V. Throws InputError unless the stages fall evenly on `pp` ranks and the m layers lie in a rank's last chunk.
  int virtual_stages(int pp) const;

  // The end of each stage in sublayers, for a DepthMap of 2 * decoder_layers() sublayers.
  std::vector<int> cuts() const;
};

// Strict where Megatron's two passes of substitution guess: groups do not nest and need their *n, a repetition is not
// repeated again, a comma does not join two numbers. The layers must begin with E in the first stage, end with L, hold
// one each, no t behind an m and all m in one stage. *0 deletes; stages may be empty. Throws InputError naming the
// column.
MegatronLayout parse_megatron_layout(std::string_view text);

// The other way, from the cuts of a model without m layers: runs of equal stages become groups. Throws InputError for a
// cut inside a decoder layer (an odd number of sublayers).
std::string megatron_layout_text(std::span<const int> cuts);

}  // namespace plumb
