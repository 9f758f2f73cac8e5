// SPDX-License-Identifier: Apache-2.0
//
// svg_fold.hpp (private): how large a step is drawn and what of it is left out.
#pragma once

#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/timeline.hpp"
#include "svg_axis.hpp"

namespace plumb {

// The rows of a band: all ranks, or the first and last ones with a row for the rest between them.
struct Rows {
  std::vector<RankId> ranks;
  std::size_t gap_before = 0;  // index into `ranks` before which the left-out ranks are told of; 0: none are left out
  double height = 22;          // of one row
  double band_height() const;  // all rows
  double top(std::size_t row) const;
};

Rows choose_rows(int num_ranks);

// Wide enough for the microbatch numbers where the step then fits on a page; else equal periods are left out, then
// numbers, then the middle of the step. REQUIRES a step that takes time.
Axis fold(const Program& program, const Timeline& timeline, const Rows& rows);

}  // namespace plumb
