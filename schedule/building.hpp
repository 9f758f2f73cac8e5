// SPDX-License-Identifier: Apache-2.0
//
// building.hpp: what every generator begins with: does the layout fit, and an empty table.
#pragma once

#include <string_view>

#include "plumb/schedule/named.hpp"

namespace plumb {

// What the literature calls it: "1F1B", "ZB-H1".
std::string_view title_of(ScheduleKind kind);

// Throws InputError unless V, the placement and M fit the kind (groups apart: see groups.hpp) and its table stays
// within 2^26 actions: those are 1.8 GiB; a layout may be larger than that (its traffic can still be counted).
void require_layout(ScheduleKind kind, const Layout& layout, bool forward_only);

// A schedule without actions, named after its kind. Throws as require_layout().
Schedule empty_schedule(ScheduleKind kind, const Layout& layout, bool forward_only);

inline Action single(Op op, ChunkId chunk, Microbatch microbatch) { return {{op, chunk, microbatch}, std::nullopt}; }

}  // namespace plumb
