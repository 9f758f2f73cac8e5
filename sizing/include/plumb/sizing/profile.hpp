// SPDX-License-Identifier: Apache-2.0
//
// profile.hpp: measured seconds per action and chunk, as a file, so that a simulation may take real times.
//
// `plumb train --profile-out` writes one, `plumb sim --profile` reads it; the format is docs/profile.md. A time is the
// least over all microbatches and measured steps: what the action takes when nothing disturbs it. A profile is of one
// model cut in one way on one machine; it holds no links.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

struct Profile {
  std::string made_by;             // "plumb train"
  int steps = 0;                   // measured
  std::vector<int> cuts;           // sublayers at which the chunks end
  std::vector<ActionTimes> times;  // per chunk
};

// From the timelines of measured steps of one program. Where a schedule has B, its halves are given half of it each;
// where it has I and W, B is their sum. Throws InputError when a chunk has no forward or no backward, or there is no
// step.
Profile make_profile(const Program& program, std::span<const int> cuts, std::span<const Timeline> steps,
                     std::string_view made_by);

std::string to_json(const Profile& profile);

// `source` names the text in errors. Throws InputError: unknown, missing or doubled keys, times that are none.
Profile parse_profile(std::string_view text, std::string_view source);
Profile load_profile(const std::string& path);

// The times of chunks that end at `cuts`: the profile's own where it was measured so, else the sums of the finer chunks
// that each of them is made of. So one profile with a chunk per decoder layer serves all layouts of a model; what a
// chunk costs by itself (depth attention's first phase once per chunk) is then counted for each of the finer ones.
// Throws InputError with both cuts unless each of `cuts` is one of the profile's.
std::vector<ActionTimes> profile_times(const Profile& profile, std::span<const int> cuts, std::string_view source);

}  // namespace plumb
