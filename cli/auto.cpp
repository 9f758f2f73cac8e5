// SPDX-License-Identifier: Apache-2.0
#include "auto.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "costs.hpp"
#include "output.hpp"
#include "resolve.hpp"

namespace plumb::cli {

bool wants_auto(const Options& options) { return options.schedule == "auto"; }

AutoSchedule search_schedule(const Options& options, const Layout& layout) {
  if (options.group || options.group_rule) {
    throw InputError("--group and --group-rule do not go with --schedule auto, which tries several groups itself");
  }
  const bool sim = options.subcommand == "sim";
  const Depth depth = sim ? resolve_depth(options, layout) : resolve_depth_or_none(options, layout);
  const UnitBytes bytes = resolve_bytes(options, depth.hidden);
  AutoRequest request{
      .layout = layout,
      .depth = depth.map,
      .policy = resolve_policy(options, depth.map),
      .costs = sim ? resolve_sim_costs(options, depth.map, bytes) : resolve_plan_costs(options, depth.map, bytes),
      .post_ahead = options.post_ahead};
  // Cuts by traffic are made for one placement.
  if (!options.placement && options.cuts != "auto") request.placements = {Placement::loop, Placement::vee};
  if (options.memory_chunks) request.memory_limit = {*options.memory_chunks};
  return auto_schedule(request);
}

std::string table_of(const AutoSchedule& found) {
  Table table({"schedule", "placement", "peak activations", "step ms", ""});
  for (std::size_t i = 0; i < found.candidates.size(); ++i) {
    const AutoCandidate& candidate = found.candidates[i];
    if (candidate.name == "auto" && i != found.chosen) continue;
    const std::string verdict = i == found.chosen ? "chosen" : candidate.fits ? "" : "does not fit";
    table.add({candidate.name, std::string(to_string(candidate.placement)),
               fmt::to_string(*std::max_element(candidate.peak.begin(), candidate.peak.end())),
               candidate.step ? milliseconds(*candidate.step) : "-", verdict});
  }
  return fmt::format("{}no order can take less than {} ms\n", table.text(), milliseconds(found.lower_bound));
}

}  // namespace plumb::cli
