// SPDX-License-Identifier: Apache-2.0
//
// auto_search.hpp (private): looks for good keys for the list scheduler, within a budget of placed computations.
//
// First steady keys by rule (which chunk goes first, how far apart, when W fills in), then a climb from the best of
// them on a step with as few microbatches as the budget asks for, then a climb on the whole step that may change single
// microbatches. Every choice comes from one seeded generator: the same input finds the same orders.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "auto_problem.hpp"
#include "list_schedule.hpp"

namespace plumb {

struct FoundOrder {
  ListResult result;  // with its order
  int seed = -1;      // index of the known order that it was searched from; -1: a rule
};

// The best orders found, best first, at most `most`. `seeds`: start times of known orders, to begin from as well.
std::vector<FoundOrder> search_orders(const ListProblem& problem, const std::vector<StrictTimes>& seeds,
                                      std::int64_t budget, std::size_t most,
                                      const std::function<void(std::int64_t)>& spent);

}  // namespace plumb
