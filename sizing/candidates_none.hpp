// SPDX-License-Identifier: Apache-2.0
//
// candidates_none.hpp (private): what to say of a request that has no layout at all.
//
// Looks for the one thing that is wrong, by what would be legal instead. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "plumb/sizing/candidates.hpp"

namespace plumb {

// A Layout has no more.
inline constexpr std::int64_t most_microbatches = std::int64_t{1} << 20;
inline constexpr std::int64_t most_computations = std::int64_t{1} << 28;  // chunks times microbatches

// As candidate_families(), empty where there is none. `has_families` stops at the first.
std::vector<CandidateFamily> families_if_any(const SizeRequest& request);
bool has_families(const SizeRequest& request);

// Throws InputError: the flag, why, and the nearest that is legal. REQUIRES !has_families(request).
[[noreturn]] void throw_none(const SizeRequest& request);

}  // namespace plumb
