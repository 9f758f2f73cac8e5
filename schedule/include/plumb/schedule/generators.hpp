// SPDX-License-Identifier: Apache-2.0
//
// generators.hpp: pure functions that make schedules, linear in the number of actions.
//
// Orders and rules follow what Megatron-LM and torch run; docs/schedules.md gives the formulas of bubble and memory.
// F, B, I, W are the times of one chunk's forward, full backward, input-only and weight-only backward. An activation
// lives from F to B, or to W where the backward is split. forward_only drops every backward (evaluation) and keeps the
// order of the forwards. All throw InputError with the rule and the nearest legal values.
#pragma once

#include "plumb/schedule/schedule.hpp"

namespace plumb {

// GPipe, V = 1: all forwards, then all backwards from the first microbatch on. Any M >= 1. Bubble per rank (P-1)(F+B);
// M activations on every rank.
Schedule gpipe(const Layout& layout, bool forward_only = false);

// 1F1B, V = 1: rank r runs min(M, P-r) warm-up forwards, then pairs (B, F), then the remaining B. Any M >= 1.
// Bubble per rank (P-1)(F+B); at most min(M, P-r) activations are alive on rank r.
Schedule one_f_one_b(const Layout& layout, bool forward_only = false);

// Interleaved 1F1B with groups of `group` consecutive microbatches per virtual stage (Megatron's order; the last group
// may be shorter). Warm-up min(2(P-r-1) + (V-1)*group + 1, M*V). Legal if P <= group <= M and (M mod group == 0 or M
// mod group >= P); when M < P the only group is M with the warm-up clamped, otherwise the nearest legal group and M are
// named. V = 1 is plain 1F1B with any group. Placement loop only (unless V = 1 or P = 1). Bubble per rank (P-1)(F+B) in
// chunk units (more when M < P); at most min(M*V, (V-1)*group + 2(P-1-r) + 1) activations on rank r.
Schedule interleaved(const Layout& layout, int group, bool forward_only = false);

// The same with torch's rule: torch_group(layout) microbatches in every group, and for V = 1 the long warm-up
// 2(P-r-1) + 1 too, so that it is not plain 1F1B (same bubble, 2(P-1-r) + 1 activations).
Schedule interleaved_torch(const Layout& layout, bool forward_only = false);

// All forwards chunk by chunk, then all backwards from the deepest chunk and the last microbatch up (looped
// breadth-first). Any V, any M, either placement. Bubble per rank (P-1)(F+B) on placement loop if M >= P; M*V
// activations on every rank.
Schedule breadth_first(const Layout& layout, bool forward_only = false);

// Zero bubble with the memory of 1F1B (ZB-H1, for V = 1 also ZB1P): the interleaved order with a split backward and
// warm-up min((V-1)*group + P-r, M*V); from the (r+1)-th backward on each I is followed by the oldest pending W.
// Groups as in interleaved(); with torch_group(layout) the order is torch's. Placement loop only (unless V = 1 or
// P = 1). Bubble (P-1)(F + I - min(F,I,W)) if M >= P; at most min(M*V, (V-1)*group + P) activations on every rank.
Schedule zb_h1(const Layout& layout, int group, bool forward_only = false);

// Zero bubble V, V = 2 on placement vee, any M >= 1. Bubble (P-1)F if F = I = W; at most 2P activations on every rank.
Schedule zb_v(const Layout& layout, bool forward_only = false);

// DualPipeV, V = 2 on placement vee, M >= 2P: forwards of one chunk overlap with backwards of the other (pairs), the
// backward is split in warm-up and cool-down. Bubble (P-1) max(F + I - W, 2F - 2W) if W <= I <= F and the halves of a
// pair run in turn; 2P + 1 activations on every rank.
Schedule dualpipe_v(const Layout& layout, bool forward_only = false);

// Zero bubble at half and at a third of 1F1B's memory, V = 2 on placement vee, any M >= 1: at most P + 2 and 2P/3 + 2
// activations on any rank (the latter rounded down, up if P mod 3 = 2), where 1F1B with the same chunks keeps 2P.
Schedule v_half(const Layout& layout, bool forward_only = false);
Schedule v_min(const Layout& layout, bool forward_only = false);

// The group used when the user names none: P, or M when M < P.
int default_group(const Layout& layout);

// The group of torch's rule: max(1, M / P) groups of equal size. Throws InputError unless M is a multiple of their
// number.
int torch_group(const Layout& layout);

}  // namespace plumb
