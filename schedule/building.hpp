// SPDX-License-Identifier: Apache-2.0
//
// building.hpp: what every generator begins with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plumb/schedule/schedule.hpp"

namespace plumb {

// A schedule without actions. Throws InputError if a table of `ops` actions per chunk and microbatch (1 if
// forward_only) would be above 2^26 actions: those are 1.8 GiB; a layout may be larger than that (its traffic can still
// be counted).
Schedule empty_schedule(std::string name, const Layout& layout, int ops, bool forward_only);

inline Action single(Op op, ChunkId chunk, Microbatch microbatch) { return {{op, chunk, microbatch}, std::nullopt}; }

// Throws InputError unless V = 1; `instead` is what to use then.
void require_single_chunk(std::string_view title, const Layout& layout, std::string_view instead);

// Throws InputError unless a rank's chunks follow each other round the ranks: placement loop, or V = 1, or P = 1.
void require_loop(std::string_view title, const Layout& layout);

// Throws InputError unless V = 2 on placement vee (any placement if P = 1, where they are the same).
void require_vee_of_two(std::string_view title, const Layout& layout);

}  // namespace plumb
