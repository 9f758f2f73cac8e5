// SPDX-License-Identifier: Apache-2.0
//
// residual_io.hpp: what a residual design reads and writes in the memory of its device, per token and sublayer,
// forward.
//
// The unit is the row of d elements. `published` follows the tables of the papers, which charge one kernel per formula
// and leave out the write of the sublayer's input. `fused` is the least that one kernel between two sublayers needs
// when a token's rows stay on chip from their one read to their one write: it takes the sublayer's output, updates what
// is carried, and writes the next sublayer's normalised input, which it counts. Weights and numbers per token are not
// rows. The head's own reads are left out. Pure.
#pragma once

#include <string>

#include "plumb/sizing/residual_design.hpp"

namespace plumb {

struct ResidualIo {
  double published = 0;
  double fused = 0;
  std::string published_formula;  // in L sublayers, D = L/2 decoder layers, N blocks of S, m streams, d
  std::string published_by;       // "paper", or "derived" where no paper has it
  std::string fused_formula;
};

// `block`: S, also the batch of sublayers of the two phases of attnres_full, as in the paper's table. Throws InputError
// where require_depth() does, and unless 1 <= block <= sublayers.
ResidualIo residual_io(const ResidualDesign& design, int sublayers, int block);

}  // namespace plumb
