// SPDX-License-Identifier: Apache-2.0
//
// resolve.hpp (private): from flags to layouts, depth maps, schedules and sizes. Every refusal names the flag and what
// is legal.
#pragma once

#include "options.hpp"
#include "output.hpp"
#include "plumb/cache/policy.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/named.hpp"
#include "plumb/schedule/schedule.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/sizing/residual_design.hpp"

namespace plumb::cli {

// Turns --layout into what it stands for: --vp, --cuts and, where no depth is given, --layers.
void apply_layout(Options& options);

Layout resolve_layout(const Options& options);

// What the options name that is read, to be kept apart from what is written.
std::vector<OutputFile> files_read(const Options& options);

// What --residual says. Throws InputError where the subcommand runs programs and the runtime does not run that design.
ResidualDesign resolve_design(const Options& options);

struct Depth {
  DepthMap map;
  ResidualDesign design{};
  std::string description;  // "kimi-k3: 93 decoder layers = 186 sublayers, 12 decoder layers = 24 sublayers per block"
  int hidden = 0;
};

Depth resolve_depth(const Options& options, const Layout& layout);

// Whether any of --model, --layers and --sublayers is given.
bool gives_depth(const Options& options);

// The same, but where nothing at all is said of depth: an ordinary residual with one sublayer per chunk, which is all
// that an order needs.
Depth resolve_depth_or_none(const Options& options, const Layout& layout);

// resolve_depth_or_none() for plan, whose orders need no depth, resolve_depth() for the others.
Depth resolve_depth_of(const Options& options, const Layout& layout);

// The schedule of that name. The command line knows one name more than the library, whose schedules need no costs; the
// refusal says so.
ScheduleKind named_schedule(const std::string& name);

// What --schedule, --group and --group-rule ask for on V virtual stages.
ScheduleRequest resolve_request(const Options& options, int vp);

Schedule resolve_schedule(const Options& options, const Layout& layout);

// `standard` for a standard residual, else what --cache says.
Policy resolve_policy(const Options& options, const DepthMap& depth);

// Of one value of the design: all its tensors.
UnitBytes resolve_bytes(const Options& options, int hidden);

}  // namespace plumb::cli
