// SPDX-License-Identifier: Apache-2.0
#include "bounds.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "network_share.hpp"
#include "plumb/cache/routing.hpp"
#include "plumb/cache/volume.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/formulas.hpp"
#include "plumb/sizing/pipeline_costs.hpp"
#include "plumb/sizing/step_end.hpp"

namespace plumb {
namespace {

bool splits_backward(ScheduleKind kind) {
  return kind != ScheduleKind::one_f_one_b && kind != ScheduleKind::interleaved && kind != ScheduleKind::gpipe &&
         kind != ScheduleKind::looped_bfs;
}

// What all members with the same cuts and placement have in common.
class Pipeline {
 public:
  Pipeline(const SizeRequest& request, const ModelTables& tables, const Candidate& candidate)
      : request_(request),
        layout_(layout_of(candidate)),
        batch_(batch_of(request, candidate)),
        cuts_(cuts_of(request, candidate, tables.costs)),
        bytes_(unit_bytes_of(request, candidate)),
        links_(pipeline_links(request.cluster, layout_.pp(), batch_.degrees, bytes_)),
        held_(held_parameters(request.shape, tables.parameters, cuts_, layout_, batch_.degrees)),
        workspaces_(chunk_workspaces(tables.workspaces, cuts_)),
        times_(chunk_times(tables.costs, cuts_)),
        expert_bytes_(tables.expert_bytes) {
    apply_stragglers(times_, request.cluster, layout_);
    bound_time();
    const std::vector<double> activations = chunk_activations(tables.costs, cuts_);
    activations_.resize(static_cast<std::size_t>(layout_.pp()));
    for (ChunkId chunk; chunk.value < layout_.num_chunks(); chunk = chunk.next())
      activations_[layout_.rank_of(chunk).index()].push_back(activations[chunk.index()]);
    for (std::vector<double>& rank : activations_)
      std::sort(rank.begin(), rank.end());
    shares_innermost_ = any_inner();
  }

  LowerBounds bounds(const Candidate& candidate, const std::vector<std::int64_t>& activations) {
    LowerBounds bounds;
    const std::vector<Footprint>& held = footprints(candidate.sharding);
    for (std::size_t rank = 0; rank < held.size(); ++rank)
      bounds.peak_bytes = std::max(bounds.peak_bytes, held[rank].total() + least_activations(rank, activations[rank]));
    if (bounds.peak_bytes > request_.memory_bytes) return bounds;
    const End& end = end_of(candidate);
    const SimTime computed = splits_backward(candidate.schedule) ? split_ : whole_;
    bounds.step_us = to_us(std::max(computed, busiest_link(candidate.policy))) + end.us;
    bounds.network_bytes = end.network_bytes + least_pipeline_bytes(candidate.policy);
    return bounds;
  }

 private:
  struct End {
    double us = 0;
    double network_bytes = 0;
  };

  const std::vector<Footprint>& footprints(Sharding sharding) {
    const auto [found, is_new] = footprints_.try_emplace(sharding);
    if (is_new) found->second = plumb::footprints(held_, workspaces_, layout_, batch_.degrees, sharding);
    return found->second;
  }

  const End& end_of(const Candidate& candidate) {
    const auto [found, is_new] = ends_.try_emplace(candidate.sharding);
    if (is_new) {
      const std::vector<StepEnd> ends = step_ends(held_, layout_, batch_, candidate.sharding, request_.cluster);
      found->second = {seconds(ends) * 1e6, fixed_network_bytes(request_, candidate, expert_bytes_, ends)};
    }
    return found->second;
  }

  // The lightest `count` activations of the rank, of which each chunk has one per microbatch.
  double least_activations(std::size_t rank, std::int64_t count) const {
    double sum = 0;
    for (const double bytes : activations_[rank]) {
      const std::int64_t some = std::min<std::int64_t>(count, layout_.microbatches());
      sum += static_cast<double>(some) * bytes;
      count -= some;
    }
    return sum;
  }

  // All of it where no two ranks share the innermost tier, else nothing is promised.
  double least_pipeline_bytes(Policy policy) {
    if (shares_innermost_) return 0;
    const auto [found, is_new] = pipeline_bytes_.try_emplace(policy);
    if (is_new) found->second = pipeline_bytes(policy);
    return found->second;
  }

  // A rank sends one message after the other, and receives so.
  SimTime busiest_link(Policy policy) {
    const auto [found, is_new] = busiest_.try_emplace(policy);
    if (!is_new) return found->second;
    std::vector<SimTime> sending(static_cast<std::size_t>(layout_.pp()));
    std::vector<SimTime> receiving(sending.size());
    for (const Transfer& transfer : make_routing(layout_, depth_map(), policy).transfers) {
      const SimTime out = link(transfer.from, transfer.to).value_unit * transfer.units();
      const SimTime back = link(transfer.to, transfer.from).gradient_unit * transfer.units();
      sending[transfer.from.index()] += out;
      receiving[transfer.to.index()] += out;
      sending[transfer.to.index()] += back;
      receiving[transfer.from.index()] += back;
    }
    const SimTime most = std::max(*std::max_element(sending.begin(), sending.end()),
                                  *std::max_element(receiving.begin(), receiving.end()));
    return found->second = most * layout_.microbatches();
  }

  double pipeline_bytes(Policy policy) const {
    const auto units = static_cast<double>(expected_units(layout_, depth_map(), policy)) * layout_.microbatches();
    return units * static_cast<double>(bytes_.value + bytes_.gradient_wire) /
           (static_cast<double>(layout_.pp()) * batch_.degrees.tp);
  }

  DepthMap depth_map() const {
    const bool blocks = request_.block_sublayers > 0;
    return DepthMap(cuts_.back(), blocks ? request_.block_sublayers : cuts_.back(), cuts_,
                    blocks ? Residual::attnres_block : Residual::standard);
  }

  bool any_inner() const {
    for (RankId from; from.value < layout_.pp(); from = from.next()) {
      for (RankId to; to.value < layout_.pp(); to = to.next()) {
        if (from != to && is_inner(request_.cluster, links_, from, to)) return true;
      }
    }
    return false;
  }

  // Rank r cannot begin before a microbatch has come through the chunks before its first one, and when it has computed
  // the last gradient of that one, the chunks before it remain. Every hop carries at least one unit. Chunks without
  // layers take no time and nothing need wait for them: they are passed over, with the hops beside them.
  void bound_time() {
    SimTime head{0};
    SimTime tail{0};        // of full backwards
    SimTime input_tail{0};  // of I, W behind the last one only
    std::vector<bool> seen(static_cast<std::size_t>(layout_.pp()));
    bool follows = false;  // the chunk before has layers
    for (ChunkId chunk; chunk.value < layout_.num_chunks(); chunk = chunk.next()) {
      const int begin = chunk.value == 0 ? 0 : cuts_[chunk.previous().index()];
      if (cuts_[chunk.index()] == begin && chunk.value + 1 < layout_.num_chunks()) {
        follows = false;
        continue;
      }
      const RankId rank = layout_.rank_of(chunk);
      if (follows && layout_.rank_of(chunk.previous()) != rank) {
        const RankId before = layout_.rank_of(chunk.previous());
        const Link& out = link(before, rank);
        const Link& back = link(rank, before);
        head += out.latency + out.value_unit;
        tail += back.latency + back.gradient_unit;
        input_tail += back.latency + back.gradient_unit;
      }
      follows = true;
      if (!seen[rank.index()]) {
        seen[rank.index()] = true;
        bound_rank(rank, head, tail, input_tail);
      }
      const ActionTimes& times = times_[chunk.index()];
      head += times.forward;
      tail += times.backward;
      input_tail += times.backward_input;
    }
  }

  void bound_rank(RankId rank, SimTime head, SimTime tail, SimTime input_tail) {
    SimTime work{0};
    SimTime weights{0};
    for (const ChunkId chunk : layout_.chunks_on(rank)) {
      const ActionTimes& times = times_[chunk.index()];
      work += times.forward + times.backward;
      weights += times.backward_weight;
    }
    work *= layout_.microbatches();
    weights *= layout_.microbatches();
    whole_ = std::max(whole_, head + work + tail);
    split_ = std::max({split_, head + work, head + work - weights + input_tail});
  }

  const Link& link(RankId from, RankId to) const {
    return links_.links[links_.of_pair[static_cast<std::size_t>(from.value * links_.num_ranks + to.value)]];
  }

  const SizeRequest& request_;
  Layout layout_;
  Batch batch_;
  std::vector<int> cuts_;
  UnitBytes bytes_;
  LinkTable links_;
  std::vector<HeldParameters> held_;
  std::vector<double> workspaces_;
  std::vector<ActionTimes> times_;
  std::vector<std::vector<double>> activations_;  // [rank] of its chunks, ascending
  SimTime whole_{0};
  SimTime split_{0};
  double expert_bytes_;
  bool shares_innermost_ = false;
  std::map<Sharding, std::vector<Footprint>> footprints_;
  std::map<Sharding, End> ends_;
  std::map<Policy, double> pipeline_bytes_;
  std::map<Policy, SimTime> busiest_;
};

}  // namespace

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

std::vector<LowerBounds> Bounds::of(const CandidateFamily& family) {
  const ModelTables& tables = tables_.of(request_, family.first);
  std::map<std::tuple<CutRule, Placement, bool>, Pipeline> pipelines;
  std::vector<LowerBounds> all;
  all.reserve(family.size());
  for (std::size_t i = 0; i < family.size(); ++i) {
    const Candidate candidate = family.at(i);
    const bool naive = candidate.cuts == CutRule::traffic && candidate.policy == Policy::naive;
    const std::tuple key(candidate.cuts, placement_of(candidate.schedule), naive);
    auto found = pipelines.find(key);
    if (found == pipelines.end()) found = pipelines.try_emplace(key, request_, tables, candidate).first;
    all.push_back(found->second.bounds(candidate, activations_held(candidate)));
  }
  return all;
}

std::vector<LowerBounds> lower_bounds(const SizeRequest& request, const CandidateFamily& family) {
  return Bounds(request).of(family);
}

}  // namespace plumb
