// SPDX-License-Identifier: Apache-2.0
#include "size_missed.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "output.hpp"

namespace plumb::cli {
namespace {

constexpr std::size_t most_simulations = 8;  // of each kind

struct Tempting {
  double least_us = 0;
  Candidate candidate;
};

std::optional<Missed> fastest(const SizeRequest& request, double memory_bytes, std::vector<Tempting> all,
                              double best_us) {
  std::stable_sort(all.begin(), all.end(),
                   [](const Tempting& a, const Tempting& b) { return a.least_us < b.least_us; });
  std::optional<Missed> found;
  for (std::size_t i = 0; i < std::min(all.size(), most_simulations) && all[i].least_us < best_us; ++i) {
    const Outcome outcome = evaluate(request, all[i].candidate);
    if (outcome.peak_bytes <= memory_bytes || outcome.step_us() >= best_us) continue;
    best_us = outcome.step_us();
    found = {all[i].candidate, outcome};
  }
  return found;
}

}  // namespace

std::vector<Missed> missed_of(const SizeRequest& request, const Evaluated& winner) {
  const Candidate& best = winner.candidate;
  SizeRequest roomy = request;
  roomy.memory_bytes = 1e30;
  roomy.settled.pp = {best.pp};
  roomy.settled.vp = {best.vp};
  roomy.settled.tp = {best.degrees.tp};
  roomy.settled.ep = {best.degrees.ep};
  roomy.settled.dp = {best.degrees.dp};
  roomy.settled.microbatch = {best.microbatch};
  std::vector<Tempting> alike;
  std::vector<Tempting> others;
  for (const CandidateFamily& family : candidate_families(roomy)) {
    const std::vector<LowerBounds> bounds = lower_bounds(roomy, family);
    for (std::size_t i = 0; i < bounds.size(); ++i) {
      const Candidate candidate = family.at(i);
      const bool is_alike = candidate.recompute == best.recompute && candidate.sharding == best.sharding;
      if (bounds[i].step_us < winner.outcome.step_us()) {
        (is_alike ? alike : others).push_back({bounds[i].step_us, candidate});
      }
    }
  }
  std::vector<Missed> missed;
  double best_us = winner.outcome.step_us();
  for (std::vector<Tempting>* kind : {&alike, &others}) {
    if (std::optional<Missed> found = fastest(roomy, request.memory_bytes, std::move(*kind), best_us)) {
      best_us = found->outcome.step_us();
      missed.push_back(*found);
    }
  }
  return missed;
}

std::string missed_text(const SizeRequest& request, const Evaluated& winner, const Missed& missed) {
  const Candidate& a = winner.candidate;
  const Candidate& b = missed.candidate;
  std::vector<std::string> changes;
  if (a.schedule != b.schedule || a.group != b.group) {
    changes.push_back(b.group > 0 ? fmt::format("{} in groups of {}", to_string(b.schedule), b.group)
                                  : std::string(to_string(b.schedule)));
  }
  if (a.policy != b.policy) changes.push_back(fmt::format("routing {}", to_string(b.policy)));
  if (a.cuts != b.cuts) changes.push_back(fmt::format("cuts by {}", to_string(b.cuts)));
  if (a.recompute != b.recompute) changes.push_back(fmt::format("recomputation {}", to_string(b.recompute)));
  if (a.sharding != b.sharding) changes.push_back(fmt::format("sharding {}", to_string(b.sharding)));
  return fmt::format("the same layout with {} would be {:.1f} % faster and lacks {} on rank {}",
                     fmt::join(changes, ", "), (1 - missed.outcome.step_us() / winner.outcome.step_us()) * 100,
                     bytes_text(missed.outcome.peak_bytes - request.memory_bytes), missed.outcome.peak_rank);
}

}  // namespace plumb::cli
