// SPDX-License-Identifier: Apache-2.0
//
// block_data.hpp: one block of sublayers with given closed sources, given sublayer outputs and given gradients: all
// that either side is handed, and all that it must find.
//
// Sublayer l reads the sources and the sum of the outputs before it, f_0 + .. + f_{l-1}; the sum of all is the block
// that closes. Everything is fp32, [tokens, width] or [width].
#pragma once

#include <cstdint>
#include <vector>

#include "ceilings.hpp"

namespace plumb::bench {

struct BlockShape {
  std::int64_t tokens = 4096;
  std::int64_t width = 2048;
  int num_sources = 8;
  int num_sublayers = 16;
  double eps = 1e-6;
};

// Random operands. Those of fewer tokens are the first rows of these.
struct BlockData {
  explicit BlockData(const BlockShape& shape_in);

  BlockShape shape;
  std::vector<Lines> sources;
  std::vector<Lines> outputs;  // f_l
  std::vector<Lines> grad_h;   // dL/dh_l
  Lines grad_closed;           // dL/d(the block)
  std::vector<Lines> queries;
  std::vector<Lines> gains;
};

// What a pass made, for comparison; a pass that is timed fills none.
struct BlockResults {
  using Rows = std::vector<std::vector<float>>;
  Rows h;             // per sublayer
  Rows closed;        // one
  Rows grad_outputs;  // per sublayer
  Rows grad_sources;
  Rows grad_queries;
  Rows grad_gains;
};

// |a - b| / |b| over all rows, in fp64.
double relative_difference(const BlockResults::Rows& a, const BlockResults::Rows& b);

}  // namespace plumb::bench
