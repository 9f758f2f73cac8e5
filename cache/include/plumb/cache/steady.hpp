// SPDX-License-Identifier: Apache-2.0
//
// steady.hpp: where a rank's row repeats itself with later microbatches.
//
// Between warm-up and cool-down a schedule does the same again and again: interleaved 1F1B every group of microbatches,
// 1F1B every microbatch, looped breadth-first every microbatch of a pass. Whoever follows such a schedule and finds
// himself where he was one period ago, all microbatches later by as many, need not follow the periods that are left: he
// knows how they go. These functions only say where the rows allow it; that the rest is as it was is for the follower
// to show.
#pragma once

#include <cstddef>
#include <vector>

#include "plumb/schedule/action.hpp"

namespace plumb {

// row[i + actions] is row[i] with its microbatches later by `microbatches`, for all i with begin <= i < end - actions;
// negative where the row goes through them from the last to the first.
struct SteadyStretch {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t actions = 0;
  int microbatches = 0;
};

// The stretches of at least four periods, ascending and apart: from each position the longest, with its shortest
// period. Takes time linear in the row; a row without order may have stretches that are not found.
std::vector<SteadyStretch> steady_stretches(const std::vector<Action>& row);

// Where the repetition that holds at `from` ends: the first i >= from so that row[i] is not row[i - actions] with its
// microbatches later, or the end of the row. REQUIRES from >= actions.
std::size_t steady_until(const std::vector<Action>& row, std::size_t from, std::size_t actions, int microbatches);

}  // namespace plumb
