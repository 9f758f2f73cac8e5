// SPDX-License-Identifier: Apache-2.0
//
// size_missed.hpp (private): what would be faster than the best layout of `plumb size` if it fitted.
//
// The same degrees, stages and microbatches as the best: what differs is said.
#pragma once

#include <string>
#include <vector>

#include "plumb/sizing/search.hpp"

namespace plumb::cli {

struct Missed {
  Candidate candidate;
  Outcome outcome;  // with as much memory as it takes
};

// The fastest with the recomputation and sharding of the winner, then the fastest of all if that is another; each only
// if it is faster than the winner. What is settled in the request stays so.
std::vector<Missed> missed_of(const SizeRequest& request, const Evaluated& winner);

// "The same layout with zb-v would be 3.1 % faster and lacks 4.1 GiB on rank 0".
std::string missed_text(const SizeRequest& request, const Evaluated& winner, const Missed& missed);

}  // namespace plumb::cli
