// SPDX-License-Identifier: Apache-2.0
//
// numbering.hpp: is a wrong schedule right but for the numbers of its microbatches?
//
// Tools and people count from 1, everywhere or in one chunk only. The plain check would report every number that is
// then missing; this says what happened instead.
#pragma once

#include <vector>

#include "plumb/schedule/check.hpp"

namespace plumb {

// One fault for each chunk whose forwards, backwards (B or I) or weight gradients (W) are numbered k..k+n-1 with k > 0,
// at the first of them; a single fault if all are. Nothing unless the schedule passes check_schedule() once those are
// numbered from 0. Linear.
std::vector<ScheduleFault> find_misnumbered(const Schedule& schedule);

}  // namespace plumb
