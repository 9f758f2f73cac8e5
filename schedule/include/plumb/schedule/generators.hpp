// SPDX-License-Identifier: Apache-2.0
//
// generators.hpp: pure functions that make schedules, linear in the number of actions.
//
// Orders and rules follow what Megatron-LM and torch run; docs/schedules.md gives the formulas of bubble and memory.
// forward_only drops every backward (evaluation). All throw InputError with the rule and the nearest legal values.
#pragma once

#include "plumb/schedule/schedule.hpp"

namespace plumb {

// 1F1B, V = 1: rank r runs min(P-r-1, M) warm-up forwards, then pairs (F, B), then the remaining B. Any M >= 1.
// Bubble per rank (P-1)(F+B); at most min(M, P-r) activations are alive on rank r.
Schedule one_f_one_b(const Layout& layout, bool forward_only = false);

// Interleaved 1F1B with groups of `group` consecutive microbatches per virtual stage (Megatron's order; the last group
// may be shorter). Warm-up min(2(P-r-1) + (V-1)*group, M*V). Legal if P <= group <= M and (M mod group == 0 or M mod
// group >= P); when M < P the only group is M with the warm-up clamped, otherwise the nearest legal group and M are
// named. V = 1 is plain 1F1B with any group. Placement loop only (unless V = 1 or P = 1). Bubble per rank (P-1)(F+B) in
// chunk units (more when M < P); at most min(M*V, (V-1)*group + 2(P-1-r) + 1) activations on rank r.
Schedule interleaved(const Layout& layout, int group, bool forward_only = false);

// All forwards chunk by chunk, then all backwards from the deepest chunk and the last microbatch up (looped
// breadth-first; V = 1 is GPipe). Any V, any M, either placement. Bubble per rank (P-1)(F+B) on placement loop if
// M >= P; M*V activations on every rank.
Schedule breadth_first(const Layout& layout, bool forward_only = false);

// The group used when the user names none: P, or M when M < P.
int default_group(const Layout& layout);

}  // namespace plumb
