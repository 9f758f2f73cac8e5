// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/candidates.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "candidates_none.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

constexpr std::array policies_of_blocks{Policy::cached, Policy::direct, Policy::relay, Policy::naive};
constexpr std::array recomputes{Recompute::none, Recompute::selective, Recompute::full};
constexpr std::array shardings{Sharding::none, Sharding::optimizer, Sharding::gradients};

template <class Value>
bool allowed(const std::vector<Value>& settled, const Value& value) {
  return settled.empty() || std::find(settled.begin(), settled.end(), value) != settled.end();
}

template <class Values, class Value>
std::vector<Value> among(const Values& all, const std::vector<Value>& settled) {
  std::vector<Value> left;
  for (const Value& value : all) {
    if (allowed(settled, value)) left.push_back(value);
  }
  return left;
}

std::vector<int> divisors(std::int64_t number) {
  std::vector<int> all;
  for (std::int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    all.push_back(static_cast<int>(d));
    if (d * d != number) all.push_back(static_cast<int>(number / d));
  }
  std::sort(all.begin(), all.end());
  return all;
}

bool divides(const SizeRequest& request, const Batch& batch) {
  try {
    require_divides(request.shape, batch);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

// Kinds that differ from each other on so many chunks and microbatches, with the groups worth trying: P hides nothing
// that a larger one would not hide better, at the price of memory.
std::vector<std::pair<ScheduleKind, int>> schedules_for(int pp, int vp, int microbatches,
                                                        const std::vector<ScheduleKind>& settled) {
  std::vector<std::pair<ScheduleKind, int>> all;
  for (const ScheduleKind kind : all_schedule_kinds()) {
    if (!allowed(settled, kind)) continue;
    // With one chunk per rank the loops are 1F1B and GPipe; with one rank all orders take the same time.
    const bool one_chunk = kind == ScheduleKind::one_f_one_b || kind == ScheduleKind::gpipe;
    if (vp == 1 && !one_chunk && kind != ScheduleKind::zb_h1) continue;
    if (pp == 1 && kind != ScheduleKind::one_f_one_b) continue;
    const Layout layout(pp, vp, microbatches, placement_of(kind));
    std::vector<int> groups{0};
    if (takes_group(kind) && vp > 1) {
      groups.clear();
      for (int group = std::min(pp, microbatches); group <= std::min(4 * pp, microbatches); group *= 2)
        groups.push_back(group);
    }
    for (const int group : groups) {
      try {
        require_fit({.kind = kind, .group = group == 0 ? std::nullopt : std::optional(group)}, layout);
        all.emplace_back(kind, group);
      } catch (const InputError&) {
        // Not for this layout.
      }
    }
  }
  return all;
}

// Tensor parallelism gathers and scatters in every sublayer: only within the innermost tier.
std::int64_t most_tensor_devices(const SizeRequest& request) {
  const std::int64_t span = request.cluster.tiers.front().span_gpus;
  return span == 0 ? request.gpus : span;
}

class Families {
 public:
  explicit Families(const SizeRequest& request)
      : request_(request), layers_(static_cast<int>(request.shape.layers.size())) {
    for (const Straggler& straggler : request.cluster.stragglers)
      least_pp_ = std::max(least_pp_, straggler.rank + 1);
  }

  std::vector<CandidateFamily> all() {
    add_pipelines();
    return std::move(families_);
  }

  bool any() {
    only_first_ = true;
    add_pipelines();
    return !families_.empty();
  }

 private:
  void add_pipelines() {
    for (const int pp : divisors(request_.gpus)) {
      if (pp > layers_ || pp < least_pp_ || !allowed(request_.settled.pp, pp)) continue;
      for (const int tp : divisors(request_.gpus / pp)) {
        if (tp > most_tensor_devices(request_) || !allowed(request_.settled.tp, tp)) continue;
        const int dp = request_.gpus / pp / tp;
        if (request_.global_batch % dp != 0 || !allowed(request_.settled.dp, dp)) continue;
        add_degrees(pp, tp, dp);
        if (only_first_ && !families_.empty()) return;
      }
    }
  }

  void add_degrees(int pp, int tp, int dp) {
    const int experts = request_.shape.experts.count;
    for (const int ep : experts > 0 ? divisors(experts) : std::vector{1}) {
      if (tp * dp % ep != 0 || !allowed(request_.settled.ep, ep)) continue;
      const Degrees degrees{.tp = tp, .ep = ep, .dp = dp};
      for (int microbatch = 1; request_.global_batch / dp % microbatch == 0; microbatch *= 2) {
        if (microbatch > 1 && microbatch * request_.sequence > max_microbatch_tokens) break;
        if (!allowed(request_.settled.microbatch, microbatch)) continue;
        if (request_.global_batch / dp / microbatch > most_microbatches) continue;
        const Candidate first{.pp = pp,
                              .degrees = degrees,
                              .microbatch = microbatch,
                              .microbatches = static_cast<int>(request_.global_batch / dp / microbatch)};
        if (divides(request_, batch_of(request_, first))) add_stages(first);
      }
    }
  }

  void add_stages(Candidate first) {
    const int most = first.pp == 1 ? 1 : std::min(max_virtual_stages, layers_ / first.pp);
    for (first.vp = 1; first.vp <= most; ++first.vp) {
      if (!allowed(request_.settled.vp, first.vp)) continue;
      if (std::int64_t{first.pp} * first.vp * first.microbatches > most_computations) continue;
      CandidateFamily family{.first = first, .schedules = schedules(first)};
      family.shardings = among(shardings, request_.settled.shardings);
      // Nothing exists twice: all shardings are the same.
      if (!has_replicas(first.degrees)) family.shardings.resize(1);
      // With one chunk per rank all gradients exist in full once more: nothing is saved over sharding the optimizer
      // only.
      if (first.vp == 1 && allowed(family.shardings, Sharding::optimizer))
        std::erase(family.shardings, Sharding::gradients);
      if (request_.block_sublayers == 0) {
        family.policies = {Policy::standard};
      } else {
        family.policies = among(policies_of_blocks, request_.settled.policies);
        // Nothing is sent: all policies are the same.
        if (first.pp == 1 && !family.policies.empty()) family.policies.resize(1);
      }
      family.cuts = {CutRule::traffic};
      if (first.pp > 1) family.cuts.push_back(CutRule::time);
      for (const Recompute recompute : among(recomputes, request_.settled.recomputes)) {
        family.first.recompute = recompute;
        if (family.size() > 0) families_.push_back(family);
      }
    }
  }

  bool has_replicas(const Degrees& degrees) const {
    return degrees.dp > 1 || (request_.shape.experts.count > 0 && expert_replicas(degrees) > 1);
  }

  const std::vector<std::pair<ScheduleKind, int>>& schedules(const Candidate& first) {
    const auto [found, is_new] = schedules_.try_emplace({first.pp, first.vp, first.microbatches});
    if (is_new) found->second = schedules_for(first.pp, first.vp, first.microbatches, request_.settled.schedules);
    return found->second;
  }

  const SizeRequest& request_;
  int layers_;
  int least_pp_ = 1;
  bool only_first_ = false;
  std::map<std::tuple<int, int, int>, std::vector<std::pair<ScheduleKind, int>>> schedules_;
  std::vector<CandidateFamily> families_;
};

}  // namespace

std::vector<CandidateFamily> families_if_any(const SizeRequest& request) { return Families(request).all(); }

bool has_families(const SizeRequest& request) { return Families(request).any(); }

std::string_view to_string(Recompute recompute) {
  return recompute == Recompute::none ? "none" : recompute == Recompute::selective ? "selective" : "full";
}

std::string_view to_string(CutRule rule) { return rule == CutRule::traffic ? "traffic" : "time"; }

std::string to_string(const Candidate& c) {
  return fmt::format("pp{} vp{} tp{} ep{} dp{} mb{} x{} {}{} {} {} {} {}", c.pp, c.vp, c.degrees.tp, c.degrees.ep,
                     c.degrees.dp, c.microbatch, c.microbatches, to_string(c.schedule),
                     c.group > 0 ? fmt::format("/{}", c.group) : "", to_string(c.policy), to_string(c.recompute),
                     to_string(c.sharding), to_string(c.cuts));
}

Layout layout_of(const Candidate& candidate) {
  return Layout(candidate.pp, candidate.vp, candidate.microbatches, placement_of(candidate.schedule));
}

Batch batch_of(const SizeRequest& request, const Candidate& candidate) {
  Batch batch;
  batch.tokens = candidate.microbatch * request.sequence;
  batch.sequence = request.sequence;
  batch.degrees = candidate.degrees;
  batch.recompute = candidate.recompute;
  batch.block_sublayers = request.block_sublayers;
  return batch;
}

Candidate CandidateFamily::at(std::size_t i) const {
  Candidate candidate = first;
  candidate.policy = policies[i % policies.size()];
  i /= policies.size();
  std::tie(candidate.schedule, candidate.group) = schedules[i % schedules.size()];
  i /= schedules.size();
  candidate.sharding = shardings[i % shardings.size()];
  candidate.cuts = cuts[i / shardings.size()];
  return candidate;
}

std::vector<CandidateFamily> candidate_families(const SizeRequest& request) {
  if (request.gpus < 1) throw InputError(fmt::format("--gpus is {}, it must be at least 1", request.gpus));
  if (request.global_batch < 1) {
    throw InputError(fmt::format("--global-batch is {}, it must be at least 1", request.global_batch));
  }
  require_room(request.cluster, request.gpus);
  std::vector<CandidateFamily> families = families_if_any(request);
  if (families.empty()) throw_none(request);
  return families;
}

}  // namespace plumb
