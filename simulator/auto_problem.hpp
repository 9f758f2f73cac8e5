// SPDX-License-Identifier: Apache-2.0
//
// auto_problem.hpp (private): what the search for a schedule knows of a request, in flat arrays, and bounds on a step.
#pragma once

#include <cstdint>
#include <vector>

#include "list_schedule.hpp"
#include "plumb/simulator/auto_schedule.hpp"

namespace plumb {

// `layout` with the request's costs and limits. The limits must be feasible.
ListProblem make_problem(const AutoRequest& request, const Layout& layout, bool split);

// The same with fewer microbatches.
ListProblem shortened(const ListProblem& problem, int microbatches);

// The same with all times shorter by 2^bits, where that keeps the search's keys far from overflow; else bits = 0.
int spare_bits(const ListProblem& problem);
ListProblem shortened_times(ListProblem problem, int bits);

// Throws InputError unless the sizes fit together.
void require_consistent(const AutoRequest& request);

// Per rank, what one microbatch needs on all its chunks: every schedule needs that, and running one microbatch after
// the other needs no more.
struct Shortage {
  RankId rank;
  std::int64_t needed = 0;
  std::int64_t limit = 0;
  std::int64_t missing() const { return needed - limit; }  // <= 0: none
};
Shortage worst_shortage(const AutoRequest& request, const Layout& layout);

std::int64_t limit_of(const AutoRequest& request, RankId rank);

// No order takes less: a rank has its work to do after its first input can arrive; one microbatch passes all chunks
// twice. Takes the split problem and B where that is cheaper than its halves.
std::int64_t lower_bound(const AutoRequest& request, ListProblem problem);

// When each computation would start if messages never waited for a link or a slot: the simulated step takes at least as
// long. [op][chunk * M + microbatch]; a B stands as an input gradient.
struct StrictTimes {
  std::vector<std::int64_t> start[3];
  std::int64_t makespan = 0;
};
StrictTimes strict_times(const Schedule& schedule, const AutoRequest& request, const ListProblem& problem);

}  // namespace plumb
