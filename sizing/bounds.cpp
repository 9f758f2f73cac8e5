// SPDX-License-Identifier: Apache-2.0
#include "bounds.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "plumb/schedule/formulas.hpp"

namespace plumb {
Bounds::Bounds(const SizeRequest& request) : request_(request) {}

// All forwards before the rank's first backward, or the exact peak where there is a formula for it.
const std::vector<std::int64_t>& Bounds::activations_held(const Candidate& c) {
  const auto [found, is_new] = held_.try_emplace({c.schedule, c.group, c.pp, c.vp, c.microbatches});
  if (is_new) {
    ScheduleFormulas formulas =
        formulas_of({.kind = c.schedule, .group = c.group > 0 ? std::optional(c.group) : std::nullopt}, layout_of(c));
    found->second = formulas.peak_is_exact ? std::move(formulas.peak) : std::move(formulas.warmup);
  }
  return found->second;
}

double Bounds::least_memory(const CandidateFamily& family) {
  const Degrees& degrees = family.first.degrees;
  const auto [found, is_new] = sums_.try_emplace({degrees.tp, degrees.ep});
  if (is_new) {
    for (const HeldParameters& sublayer : sublayer_parameters(request_.shape, degrees)) {
      found->second.replicated += sublayer.replicated;
      found->second.split += sublayer.split;
      found->second.experts += sublayer.experts;
    }
  }
  const HeldParameters& sum = found->second;
  const double own = (sum.replicated + sum.split) / degrees.dp + sum.experts / expert_replicas(degrees);
  double least = 0;
  for (const Sharding sharding : family.shardings) {
    const double bytes = weight_bytes * sum.all() +
                         gradient_bytes * (sharding == Sharding::gradients ? own : sum.all()) +
                         optimizer_bytes * (sharding == Sharding::none ? sum.all() : own);
    least = least == 0 ? bytes : std::min(least, bytes);
  }
  return least / family.first.pp;  // the fullest rank holds no less than the mean
}

PipelineBounds& Bounds::Family::of(const Candidate& candidate) {
  const bool naive = candidate.cuts == CutRule::traffic && candidate.policy == Policy::naive;
  const std::tuple key(candidate.cuts, placement_of(candidate.schedule), naive);
  auto found = pipelines_.find(key);
  if (found == pipelines_.end()) found = pipelines_.try_emplace(key, request_, tables_, candidate).first;
  return found->second;
}

std::vector<LowerBounds> Bounds::of(const CandidateFamily& family) {
  Family pipelines(request_, tables_.of(request_, family.first));
  std::vector<LowerBounds> all;
  all.reserve(family.size());
  for (std::size_t i = 0; i < family.size(); ++i) {
    const Candidate candidate = family.at(i);
    all.push_back(pipelines.of(candidate).first_look(candidate, activations_held(candidate)));
  }
  return all;
}

void Bounds::look_closer(const CandidateFamily& family, std::span<Bounded> members) {
  Family pipelines(request_, tables_.of(request_, family.first));
  for (Bounded& member : members) {
    const Candidate candidate = family.at(member.member);
    member.bounds = pipelines.of(candidate).closer_look(candidate, member.bounds, orders_);
  }
}

std::vector<LowerBounds> lower_bounds(const SizeRequest& request, const CandidateFamily& family) {
  Bounds bounds(request);
  std::vector<LowerBounds> all = bounds.of(family);
  std::vector<Bounds::Bounded> members;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].peak_bytes <= request.memory_bytes) members.push_back({i, all[i]});
  }
  bounds.look_closer(family, members);
  for (const Bounds::Bounded& member : members)
    all[member.member] = member.bounds;
  return all;
}

}  // namespace plumb
