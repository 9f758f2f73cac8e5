// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/evaluate.hpp"

#include <algorithm>
#include <optional>

#include "model_tables.hpp"
#include "network_share.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/simulator/memory.hpp"
#include "plumb/simulator/simulate.hpp"
#include "plumb/sizing/model_config.hpp"
#include "plumb/sizing/pipeline_costs.hpp"
#include "plumb/sizing/step_end.hpp"

namespace plumb {
namespace {

// I keeps what W needs.
bool frees(Op op) { return op == Op::backward || op == Op::backward_weight; }

// Everything about one candidate that its simulation needs.
class Bench {
 public:
  Bench(const SizeRequest& request, const Candidate& candidate)
      : request_(request),
        layout_(layout_of(candidate)),
        batch_(batch_of(request, candidate)),
        bytes_(unit_bytes_of(request, candidate)),
        tables_(model_tables(request, candidate)),
        cuts_(cuts_of(request, candidate, tables_.costs)),
        schedule_(make_schedule(
            {.kind = candidate.schedule, .group = candidate.group > 0 ? std::optional(candidate.group) : std::nullopt},
            layout_)),
        held_(held_parameters(request.shape, tables_.parameters, cuts_, layout_, batch_.degrees)),
        workspaces_(chunk_workspaces(tables_.workspaces, cuts_)),
        activations_(chunk_activations(tables_.costs, cuts_)),
        coming_(schedule_.ranks.size()) {
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank)
      activation_peaks_.push_back(activation_peak(schedule_.ranks[rank]));
    shard(candidate.sharding);
  }

  // What comes and goes, and when, is the same for all.
  void shard(Sharding sharding) {
    sharding_ = sharding;
    footprints_ = footprints(held_, workspaces_, layout_, batch_.degrees, sharding);
  }

  // Without blocks and messages.
  double least_peak(std::size_t rank) const { return footprints_[rank].total() + activation_peaks_[rank]; }

  std::size_t fullest() const {
    std::size_t fullest = 0;
    for (std::size_t rank = 1; rank < footprints_.size(); ++rank) {
      if (least_peak(rank) > least_peak(fullest)) fullest = rank;
    }
    return fullest;
  }

  bool has_run() const { return program_.has_value(); }

  void run(Policy policy) {
    const int sublayers = cuts_.back();
    const bool blocks = request_.block_sublayers > 0;
    const DepthMap depth(sublayers, blocks ? request_.block_sublayers : sublayers, cuts_,
                         blocks ? Residual::attnres_block : Residual::standard);
    std::vector<ActionTimes> times = chunk_times(tables_.costs, cuts_);
    apply_stragglers(times, request_.cluster, layout_);
    costs_.emplace(std::move(times), pipeline_links(request_.cluster, layout_.pp(), batch_.degrees, bytes_), bytes_);
    program_.emplace(lower(schedule_, depth, policy, {.costs = costs_->plan_costs(), .num_threads = 1}));
    timeline_ = simulate(*program_, *costs_);
  }

  // The fullest device. Ranks that cannot be it are not looked at.
  MemoryNeed peak() {
    std::vector<std::size_t> ranks(footprints_.size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      ranks[rank] = rank;
    std::stable_sort(ranks.begin(), ranks.end(), [&](std::size_t a, std::size_t b) { return most(a) > most(b); });
    MemoryNeed worst{.held = {.weights_bytes = -1}};
    for (const std::size_t rank : ranks) {
      if (most(rank) < worst.total()) break;
      const MemoryNeed need = peak_of(rank);
      if (need.total() > worst.total() || (need.total() == worst.total() && need.rank < worst.rank)) worst = need;
    }
    return worst;
  }

  Outcome outcome(const Candidate& candidate) {
    Outcome outcome;
    const MemoryNeed worst = peak();
    outcome.fits = worst.total() <= request_.memory_bytes;
    outcome.peak_bytes = worst.total();
    outcome.peak_rank = worst.rank;
    const std::vector<StepEnd> ends = step_ends(held_, layout_, batch_, sharding_, request_.cluster);
    outcome.pipeline_us = to_us(timeline_.step);
    outcome.step_end_us = seconds(ends) * 1e6;
    SimTime busy{0};
    SimTime exposed{0};
    for (const RankTimeline& rank : timeline_.ranks) {
      for (const ComputeTimes& compute : rank.compute) {
        busy += compute.end - compute.start;
        exposed += compute.exposed;
      }
    }
    const auto ranks = static_cast<double>(timeline_.ranks.size());
    outcome.bubble = 1 - static_cast<double>(busy.count()) / (static_cast<double>(timeline_.step.count()) * ranks);
    outcome.exposed_us = to_us(exposed) / ranks;
    const LinkTable links = pipeline_links(request_.cluster, layout_.pp(), batch_.degrees, bytes_);
    outcome.network_bytes =
        fixed_network_bytes(request_, candidate, tables_.expert_bytes, ends) +
        pipeline_network_bytes(request_.cluster, layout_, program_->routing, links, bytes_, batch_.degrees.tp);
    return outcome;
  }

 private:
  // Most that could be held at once.
  double most(std::size_t rank) const {
    return least_peak(rank) +
           slots_bytes(program_->ranks[rank].num_value_slots, program_->ranks[rank].num_gradient_slots);
  }

  // Of one device: a unit is split by tokens over the tensor-parallel group.
  double slots_bytes(double values, double gradients) const {
    return (values * static_cast<double>(bytes_.value) + gradients * static_cast<double>(bytes_.gradient_slot)) /
           batch_.degrees.tp;
  }

  // The most that a rank holds of what comes and goes with microbatches.
  struct Coming {
    double activation_bytes = 0;
    double block_bytes = 0;
  };

  double activation_peak(const std::vector<Action>& actions) const;
  MemoryNeed peak_of(std::size_t rank);
  Coming coming(std::size_t rank) const;

  const SizeRequest& request_;
  Layout layout_;
  Batch batch_;
  UnitBytes bytes_;
  ModelTables tables_;
  std::vector<int> cuts_;
  Schedule schedule_;
  std::vector<HeldParameters> held_;
  std::vector<double> workspaces_;
  std::vector<double> activations_;  // [chunk] of one microbatch
  std::vector<double> activation_peaks_;
  std::vector<std::optional<Coming>> coming_;  // of ranks that were looked at
  Sharding sharding_ = Sharding::none;
  std::vector<Footprint> footprints_;
  std::optional<CostModel> costs_;
  std::optional<Program> program_;
  Timeline timeline_;
};

double Bench::activation_peak(const std::vector<Action>& actions) const {
  double now = 0;
  double peak = 0;
  const auto run = [&](const Compute& compute) {
    const double bytes = activations_[compute.chunk.index()];
    if (compute.op == Op::forward) peak = std::max(peak, now += bytes);
    if (frees(compute.op)) now -= bytes;
  };
  for (const Action& action : actions) {
    run(action.first);
    if (action.second) run(*action.second);
  }
  return peak;
}

MemoryNeed Bench::peak_of(std::size_t rank) {
  if (!coming_[rank]) coming_[rank] = coming(rank);
  return {.rank = static_cast<int>(rank),
          .held = footprints_[rank],
          .activation_bytes = coming_[rank]->activation_bytes,
          .block_bytes = coming_[rank]->block_bytes};
}

// Activations change when computations begin and end, slots by the curve of memory.hpp: the two lists side by side.
Bench::Coming Bench::coming(std::size_t rank) const {
  const std::vector<MemoryPoint> curve = memory_curve(*program_, timeline_, RankId(rank));
  const std::vector<ComputeStep>& steps = program_->ranks[rank].compute;
  const std::vector<ComputeTimes>& times = timeline_.ranks[rank].compute;
  Coming peak;
  double activations = 0;
  double slots = 0;
  std::size_t point = 0;
  const auto look = [&] {
    if (activations + slots <= peak.activation_bytes + peak.block_bytes) return;
    peak.activation_bytes = activations;
    peak.block_bytes = slots;
  };
  // Slots as they are before `at`, and what they reach on the way.
  const auto advance = [&](SimTime at, bool including) {
    for (; point < curve.size() && (curve[point].at < at || (including && curve[point].at == at)); ++point) {
      slots = slots_bytes(curve[point].resident.value_slots(), curve[point].resident.gradient_slots());
      if (curve[point].at < at) look();
    }
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double bytes = activations_[steps[i].compute.chunk.index()];
    if (steps[i].compute.op == Op::forward) {
      advance(times[i].start, true);
      activations += bytes;
      look();
    }
    if (frees(steps[i].compute.op)) {
      advance(times[i].end, false);
      activations -= bytes;
    }
  }
  return peak;
}

}  // namespace

UnitBytes unit_bytes_of(const SizeRequest& request, const Candidate& candidate) {
  constexpr int storage_bytes = 2;
  return unit_bytes(std::int64_t{candidate.microbatch} * request.sequence, request.shape.hidden, storage_bytes,
                    request.gradient_wire);
}

std::vector<Outcome> evaluate(const SizeRequest& request, const Candidate& candidate,
                              std::span<const Sharding> shardings) {
  Bench bench(request, candidate);
  std::vector<Outcome> outcomes;
  for (const Sharding sharding : shardings) {
    bench.shard(sharding);
    const std::size_t fullest = bench.fullest();
    if (bench.least_peak(fullest) > request.memory_bytes) {
      outcomes.push_back({.peak_bytes = bench.least_peak(fullest), .peak_rank = static_cast<int>(fullest)});
      continue;
    }
    if (!bench.has_run()) bench.run(candidate.policy);
    Candidate sharded = candidate;
    sharded.sharding = sharding;
    outcomes.push_back(bench.outcome(sharded));
  }
  return outcomes;
}

Outcome evaluate(const SizeRequest& request, const Candidate& candidate) {
  return evaluate(request, candidate, std::span(&candidate.sharding, 1)).front();
}

MemoryNeed memory_need(const SizeRequest& request, const Candidate& candidate) {
  Bench bench(request, candidate);
  bench.run(candidate.policy);
  return bench.peak();
}

}  // namespace plumb
