// SPDX-License-Identifier: Apache-2.0
//
// formulas.hpp: what is known about a named schedule without running it: warm-up, activations and bubble.
//
// Numbers and the text of the formula that gives them, for people (`plumb plan --format text`) and for tests, which
// compare every one of them with the generated table. Symbols: P ranks, V chunks per rank, M microbatches, N group, r
// rank; F, I, W the times of one chunk's forward and of the two halves of its backward, B = I + W. All in units of one
// chunk and one microbatch, with free messages. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plumb/schedule/makespan.hpp"
#include "plumb/schedule/named.hpp"

namespace plumb {

struct ScheduleFormulas {
  // Forwards of rank r before its first backward.
  std::string warmup_text;
  std::vector<std::int64_t> warmup;  // per rank, exact

  // Most activations alive on rank r, as peak_activations() counts them.
  std::string peak_text;
  std::vector<std::int64_t> peak;  // per rank
  bool peak_is_exact = true;       // false: an upper bound

  // Makespan beyond M*V*(F+B), the same for all ranks: waiting before the first, between and after the last action.
  std::string bubble_text;
  std::string bubble_rule;  // when the bubble is exactly that: "always", "F = I = W", ...
};

// `pairs_together`: how overlapped pairs run, see PairTiming; it changes only the bubble of DualPipeV. Both throw
// InputError where require_fit() does.
ScheduleFormulas formulas_of(const ScheduleRequest& request, const Layout& layout, bool pairs_together = false);

// The bubble of bubble_text for these times, or nothing where the formula is not exact. A pair takes the sum of its
// halves.
std::optional<double> bubble_by_formula(const ScheduleRequest& request, const Layout& layout, const ChunkTimes& times,
                                        bool pairs_together = false);

}  // namespace plumb
