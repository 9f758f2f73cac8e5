// SPDX-License-Identifier: Apache-2.0
//
// periods.hpp (private): where a timeline repeats itself, so that a drawing may leave the repetitions out.
//
// In a period every rank runs the same operations on the same chunks with the same times as in the one before, on
// microbatches that are all later by the same number.
#pragma once

#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

struct Periods {
  SimTime begin{0};
  SimTime length{0};  // of one period
  std::int64_t count = 0;
  SimTime end() const { return begin + count * length; }
};

// Disjoint and ascending, each with a count of at least 3. Looks from a fixed number of instants, so short repetitions
// in a long step may be missed. Linear in the number of actions but for a constant number of tries.
std::vector<Periods> find_periods(const Program& program, const Timeline& timeline);

}  // namespace plumb
