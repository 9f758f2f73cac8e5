// SPDX-License-Identifier: Apache-2.0
//
// unfold.hpp (private): the timeline of a program from that of a shorter one that lacks some periods.
//
// The period from `begin` to `end` is told again, `cut.periods` over, each time one period later: what happened after
// `begin` and until `end` happens to the steps and messages one period on; what happened after `end` follows behind.
// A message has several times; each counts by itself, because a period may end between two of them. Only the ends of
// messages behind the cut that wait for nothing were there from the start.
#pragma once

#include "plumb/simulator/timeline.hpp"
#include "program_cut.hpp"

namespace plumb {

// REQUIRES that the timeline's lists are as the cut leaves them.
void unfold(Timeline& timeline, const Program& program, const ProgramCut& cut, SimTime begin, SimTime end);

}  // namespace plumb
