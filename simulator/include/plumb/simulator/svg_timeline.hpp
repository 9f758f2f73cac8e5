// SPDX-License-Identifier: Apache-2.0
//
// svg_timeline.hpp: a simulated step as a drawing for people: ranks as rows, time to the right.
//
// Colour says the operation, lightness the virtual stage, the number in a cell the microbatch; the two computations of
// an overlapped pair share one cell. Idle time is shown in three kinds: waiting for messages (hatched), waiting for
// work elsewhere (grey), before a rank's first and after its last computation (light). A long step is wrapped into
// bands; beyond that equal periods are left out at a marked break, and beyond that the middle. Many ranks lose the
// middle rows. The text is a complete SVG 1.1 document of at most about 2 MB without scripts or outside references.
// Pure: the same input gives the same bytes.
#pragma once

#include <string>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

struct SvgOptions {
  std::string title;     // empty: the schedule's name; any text, escaped here
  std::string subtitle;  // a second line after the layout and the bubble
  bool messages = true;  // arrows, where there are no more than 64 of them
};

// `timeline` must come from simulate(program, ..).
std::string svg_timeline(const Program& program, const Timeline& timeline, const SvgOptions& options = {});

}  // namespace plumb
