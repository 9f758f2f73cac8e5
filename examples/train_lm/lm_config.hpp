// SPDX-License-Identifier: Apache-2.0
//
// lm_config.hpp: the language model of this example, as plain numbers.
//
// A byte-level decoder: token embedding, sublayers alternating causal attention and SwiGLU (attention first), each
// behind an RMSNorm of its own; final RMSNorm; logits over 256 bytes. Positions are rotary, so b_0 is the bare
// embedding. What lies between the sublayers (the residual stream) is chosen by `residual`. It knows no ranks and no
// chunks. Sizes count elements. Plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "plumb/kernels/depth_config.hpp"
#include "plumb/kernels/storage.hpp"
#include "plumb/schedule/depth_map.hpp"

namespace plumb::lm {

inline constexpr std::int64_t kVocabulary = 256;  // one token per byte value

struct LmConfig {
  int num_sublayers = 16;      // 2 x decoder layers; attention where the index is even
  std::int64_t width = 128;    // d
  std::int64_t heads = 4;      // width must be a multiple of 2 x heads
  std::int64_t sequence = 64;  // tokens of one sequence
  std::int64_t sequences = 2;  // sequences of one microbatch
  Residual residual = Residual::attnres_block;
  int block_sublayers = 2;  // S; 1 under attnres_full, ignored under standard
  double eps = 1e-6;        // of every norm, depth keys included
  // Of what lies between the sublayers: blocks, partial sums, what a sublayer reads and writes. Layers compute in fp32
  // (fp64 under fp64), and so parameters, gradients and moments are kept.
  Storage dtype = Storage::fp32;
  QueryInit query_init = QueryInit::zero;
  std::uint64_t seed = 0;  // initial parameters and the choice of training sequences

  std::int64_t tokens() const { return sequence * sequences; }  // of one microbatch
  // Hidden width of SwiGLU: 8/3 d, rounded up to a multiple of 8.
  std::int64_t mlp_width() const { return (8 * width + 23) / 24 * 8; }
};

// "fp32", "fp64", "bf16", "fp16"; none for anything else.
std::optional<Storage> storage_from_name(std::string_view name);

// Throws InputError, one line with the nearest legal value, for the first field that is not legal.
void validate(const LmConfig& config);

// The kernels' view of the same model. REQUIRES: not a standard residual.
DepthConfig depth_config(const LmConfig& config);

}  // namespace plumb::lm
