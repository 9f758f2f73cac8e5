// SPDX-License-Identifier: Apache-2.0
#include "auto.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costs.hpp"
#include "output.hpp"
#include "resolve.hpp"

namespace plumb::cli {

bool wants_auto(const Options& options) { return options.schedule == "auto"; }

AutoSchedule search_schedule(const Options& options, const Layout& layout) {
  if (options.group || options.group_rule) {
    throw InputError("--group and --group-rule do not go with --schedule auto, which tries several groups itself");
  }
  const Depth depth =
      options.subcommand == "sim" ? resolve_depth(options, layout) : resolve_depth_or_none(options, layout);
  const UnitBytes bytes = resolve_bytes(options, depth.hidden);
  AutoRequest request{.layout = layout,
                      .depth = depth.map,
                      .policy = resolve_policy(options, depth.map),
                      .costs = resolve_costs(options, depth.map, bytes),
                      .post_ahead = options.post_ahead,
                      .simulation = resolve_simulation(options)};
  // Cuts by traffic are made for one placement.
  if (!options.placement && options.cuts != "auto") request.placements = {Placement::loop, Placement::vee};
  if (options.memory_chunks) request.memory_limit = {*options.memory_chunks};
  return auto_schedule(request);
}

namespace {

std::int64_t peak_of(const AutoCandidate& candidate) {
  return *std::max_element(candidate.peak.begin(), candidate.peak.end());
}

}  // namespace

std::string table_of(const AutoSchedule& found) {
  Table table({"schedule", "placement", "peak activations", "step ms", ""});
  for (std::size_t i = 0; i < found.candidates.size(); ++i) {
    const AutoCandidate& candidate = found.candidates[i];
    if (candidate.name == "auto" && i != found.chosen) continue;
    const std::string from = candidate.from.empty() ? "" : fmt::format(", from {}", candidate.from);
    const std::string verdict = i == found.chosen ? "chosen" + from : candidate.fits ? "" : "does not fit";
    table.add({candidate.name, std::string(to_string(candidate.placement)), fmt::to_string(peak_of(candidate)),
               candidate.step ? milliseconds(*candidate.step) : "-", verdict});
  }
  return fmt::format("{}no order can take less than {} ms\n", table.text(), milliseconds(found.lower_bound));
}

std::string choice_of(const AutoSchedule& found) {
  const AutoCandidate& chosen = found.candidates[found.chosen];
  const std::string what =
      chosen.name != "auto"
          ? fmt::format("{}, which {}", chosen.name,
                        found.step <= found.lower_bound ? "nothing can beat" : "no order it found beats")
          : fmt::format("an order of its own, searched from {}", chosen.from);
  std::string text = fmt::format("auto chose {} ({} placement): {} ms, peak {} activations", what,
                                 to_string(chosen.placement), milliseconds(found.step), peak_of(chosen));
  const AutoCandidate* best = nullptr;
  for (const AutoCandidate& candidate : found.candidates) {
    if (candidate.name != "auto" && candidate.step && (best == nullptr || *candidate.step < *best->step)) {
      best = &candidate;
    }
  }
  if (chosen.name == "auto" && best != nullptr) {
    text += fmt::format("; the best named one that fits is {} with {} ms", best->name, milliseconds(*best->step));
  }
  return text + fmt::format("; no order can take less than {} ms", milliseconds(found.lower_bound));
}

std::string to_json(const AutoSchedule& found) {
  using Json = nlohmann::ordered_json;
  const AutoCandidate& chosen = found.candidates[found.chosen];
  Json candidates = Json::array();
  for (const AutoCandidate& candidate : found.candidates) {
    candidates.push_back({{"schedule", candidate.name},
                          {"placement", to_string(candidate.placement)},
                          {"peak_activation_chunks", peak_of(candidate)},
                          {"fits", candidate.fits},
                          {"step_us", candidate.step ? Json(to_us(*candidate.step)) : Json()}});
  }
  return Json{{"chosen", chosen.name},
              {"from", chosen.from.empty() ? Json() : Json(chosen.from)},
              {"placement", to_string(chosen.placement)},
              {"step_us", to_us(found.step)},
              {"lower_bound_us", to_us(found.lower_bound)},
              {"candidates", std::move(candidates)}}
      .dump();
}

}  // namespace plumb::cli
