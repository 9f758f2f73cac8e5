// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/residual_io.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "plumb/sizing/model_config.hpp"

namespace plumb {
namespace {

constexpr double ways = 4;  // MUDDFormer: query, key, value, residual

// m streams. Published (mHC's table for Hyper-Connections, n there): the mapping's coefficients read m; the input reads
// m, writes 1; the output spread over streams reads 1, writes m; the mixed streams read m, write m; their sum reads 2
// m, writes m: 8 m + 2. Fused: reads m streams and the output, writes m streams and the next input; m = 1 is the
// ordinary addition with its norm.
ResidualIo of_streams(double m) { return {8 * m + 2, 2 * m + 2, "(8m+2)d", "paper", "(2m+2)d"}; }

// One sum: published reads x and f and writes x + f; fused also writes the normalised input.
ResidualIo of_sum() { return {3, 4, "3d", "paper", "4d"}; }

// Rows that a group of `count` readers moves when each is to have its own mixture of `sources` older rows: the rows are
// read by every reader, or once for all, each mixture but the first (used at once) being written and read again.
double mixtures(double sources, double count) { return std::min(sources * count, sources + 2 * (count - 1)); }

// One block of `s` sublayers that sees `n` closed ones (b_0 included), m rows each. Every sublayer's input is written;
// between two sublayers the partial and the output are read and the partial is written. The partial after the first
// sublayer is that sublayer's output, one row that nobody writes again: read where it is merged and where it is added.
double fused_block(double n, double s, double m) {
  const double written_inputs = s;
  if (s == 1) return m * n + written_inputs + (m == 1 ? 0 : 1 + m);
  const double additions = (s - 1) * (2 * m + 1) - (m - 1);
  return m * mixtures(n, s) + written_inputs + additions + 1;
}

ResidualIo of_blocks(const ResidualDesign& design, int sublayers, int block) {
  const double m = design.num_streams;
  const int blocks = (sublayers - 1) / block + 1;
  double fused = 0;
  for (int n = 1; n <= blocks; ++n)
    fused += fused_block(n, std::min(block, sublayers - (n - 1) * block), m);
  const double share = static_cast<double>(blocks) / block;
  ResidualIo io{share + 5, fused / sublayers, "(N/S+5)d", "paper",
                "per block of s that sees n: (min(ns, n+2s-2) + 4s-2)d"};
  if (design.streams == StreamKind::none) return io;
  // The reads and writes of depth attention on m rows instead of one, and those of the streams without the ordinary
  // addition of m rows, which both contain.
  io.published = m * (share + 5) + of_streams(m).published - 3 * m;
  io.published_formula = "(m(N/S+10)+2)d";
  io.published_by = "derived";
  io.fused_formula = "per block of s that sees n: (m min(ns, n+2s-2) + (2m+2)s-3m+1)d";
  return io;
}

// `count` outputs in groups of g, the first group seeing `before` rows and each group g more: every output mixes all
// rows before its group and, one by one, those of its group so far. The least over all g.
double grouped_mixtures(int count, double before) {
  double least = std::numeric_limits<double>::max();
  for (int g = 1; g <= count; ++g) {
    double sum = 0;
    for (int first = 0; first < count; first += g) {
      const double s = std::min(g, count - first);
      sum += mixtures(before + first, s) + s * (s - 1) / 2;
    }
    least = std::min(least, sum);
  }
  return least;
}

// Nothing is added: a sublayer's output is a source. Published: the two phases in batches of S sublayers.
ResidualIo of_full(int sublayers, int block) {
  const double blocks = (sublayers - 1) / block + 1;
  return {block + blocks, (grouped_mixtures(sublayers, 1) + sublayers) / sublayers, "(S+N)d", "paper",
          "(G(L)/L + 1)d, G: least over groups of g"};
}

// The sums within a decoder layer are those of an ordinary stream. After layer i the average of X_0..X_i: i + 1 rows
// read and one written, in the mean (D+3)/2 + 1 per layer of two sublayers. Fused with the layer's last addition: reads
// the stream, the output and the older rows, writes X_i, the average and the next input (5 and the older rows); between
// the two sublayers 4. Weights are fixed, so the older rows can be averaged for several layers in one pass.
ResidualIo of_denseformer(int layers) {
  const double d = layers;
  return {3 + (d + 5) / 4, (4 + 5 + grouped_mixtures(layers, 1) / d) / 2, "(3+(D+5)/4)d", "derived",
          "(9 + G(D)/D)d/2, G: least over groups of g"};
}

// Four averages instead of one, each a kernel of its own: 4 ((D+3)/2 + 1) per layer. Fused: the older rows are read
// once for all four, X_i, the residual and three normalised inputs are written. The weights of layer i are made from
// X_i, so nothing can be averaged ahead: D/2 + 1/2 older rows per layer.
ResidualIo of_muddformer(int layers) {
  const double d = layers;
  return {3 + ways * (d + 5) / 4, (4 + 2 + 1 + ways + (d + 1) / 2) / 2, "(3+(D+5))d", "derived", "(11 + (D+1)/2)d/2"};
}

}  // namespace

ResidualIo residual_io(const ResidualDesign& design, int sublayers, int block) {
  require_depth(design, sublayers);
  if (block < 1 || block > sublayers) {
    throw InputError(fmt::format("{} sublayers per block of {} in all: legal are 1 to {}", block, sublayers,
                                 std::max(1, sublayers)));
  }
  switch (design.kind) {
    case ResidualKind::standard:
    case ResidualKind::deepnet:  // the scale is one number
      break;
    case ResidualKind::denseformer:
      return of_denseformer(sublayers / sublayers_per_decoder_layer);
    case ResidualKind::muddformer:
      return of_muddformer(sublayers / sublayers_per_decoder_layer);
    case ResidualKind::attnres_full:
      return of_full(sublayers, block);
    case ResidualKind::attnres_block:
      return of_blocks(design, sublayers, block);
  }
  return design.streams == StreamKind::none ? of_sum() : of_streams(design.num_streams);
}

}  // namespace plumb
