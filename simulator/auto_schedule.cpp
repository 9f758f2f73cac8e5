// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/auto_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "auto_problem.hpp"
#include "auto_search.hpp"
#include "plumb/schedule/named.hpp"

namespace plumb {
namespace {

constexpr std::size_t most_found = 3;  // orders of the search that are simulated, per placement and way to split B

std::string amount(double units, MemoryUnit unit) {
  if (unit == MemoryUnit::bytes) return fmt::format("{:.3g}", units / (std::int64_t{1} << 30));
  return fmt::format("{:g}", units);
}

std::string shortage_text(RankId rank, std::int64_t needed, std::int64_t limit, MemoryUnit unit) {
  const auto text = [&](std::int64_t units) { return amount(static_cast<double>(units), unit); };
  return fmt::format("rank {} needs at least {} {}, the limit is {}: {} {}short", rank.value, text(needed),
                     unit == MemoryUnit::bytes ? "GiB" : "chunk activations", text(limit), text(needed - limit),
                     unit == MemoryUnit::bytes ? "GiB " : "");
}

struct Named {
  std::string name;
  Schedule schedule;
};

// Every named schedule of this placement that the layout allows, with a few groups where there are any.
std::vector<Named> named_schedules(const Layout& layout) {
  std::vector<Named> all;
  const auto attempt = [&](const ScheduleRequest& request, std::string name) {
    try {
      all.push_back({std::move(name), make_schedule(request, layout)});
    } catch (const InputError&) {
      // Not for this layout; the user did not ask for it.
    }
  };
  for (const ScheduleKind kind : all_schedule_kinds()) {
    if (placement_of(kind) != layout.placement()) continue;
    const std::string name(to_string(kind));
    if (!takes_group(kind) || layout.vp() == 1) {
      attempt({.kind = kind, .group = {}}, name);
      continue;
    }
    const int pp = layout.pp();
    const int microbatches = layout.microbatches();
    for (const int group : std::set<int>{std::min(pp, microbatches), 2 * pp, 4 * pp, microbatches}) {
      if (group <= microbatches) attempt({.kind = kind, .group = group}, fmt::format("{}, group {}", name, group));
    }
  }
  return all;
}

class Chooser {
 public:
  explicit Chooser(const AutoRequest& request) : request_(request) {}

  AutoSchedule run() {
    require_consistent(request_);
    const std::vector<Layout> layouts = feasible_layouts();
    for (const Layout& layout : layouts)
      try_layout(layout, request_.budget / static_cast<std::int64_t>(layouts.size()));
    AutoSchedule result{std::move(*best_), step_, SimTime(*bound_), candidates_[chosen_].peak, {}, chosen_};
    result.candidates = std::move(candidates_);
    return result;
  }

 private:
  // Small steps are simulated for every candidate, so that the table is complete.
  static constexpr std::int64_t small_step = 200'000;

  std::vector<Layout> feasible_layouts() const {
    std::vector<Placement> placements = request_.placements;
    if (placements.empty()) placements.push_back(request_.layout.placement());
    std::vector<Layout> layouts;
    std::optional<Shortage> least;
    for (const Placement placement : placements) {
      const Layout& given = request_.layout;
      const Layout layout(given.pp(), given.vp(), given.microbatches(), placement);
      if (std::find(layouts.begin(), layouts.end(), layout) != layouts.end()) continue;
      const Shortage shortage = worst_shortage(request_, layout);
      if (shortage.missing() <= 0) {
        layouts.push_back(layout);
      } else if (!least || shortage.missing() < least->missing()) {
        least = shortage;
      }
    }
    if (layouts.empty()) throw MemoryTooSmall(least->rank, least->needed, least->limit, request_.unit);
    return layouts;
  }

  void try_layout(const Layout& layout, std::int64_t budget) {
    const ListProblem problem = make_problem(request_, layout, true);
    constexpr int too_many = 12;
    if (spare_bits(problem) >= too_many) {
      throw InputError("auto: the step is more than 53 days of work in virtual time: give smaller costs");
    }
    const std::int64_t bound = lower_bound(request_, problem);
    bound_ = bound_ ? std::min(*bound_, bound) : bound;
    std::vector<Named> named = named_schedules(layout);
    std::vector<StrictTimes> seeds;
    for (std::size_t i = 0; i < named.size(); ++i) {
      progress("named", i, named.size());
      AutoCandidate candidate = as_candidate(named[i].name, named[i].schedule);
      if (candidate.fits) {
        StrictTimes times = strict_times(named[i].schedule, request_, problem);
        consider(std::move(candidate), named[i].schedule, problem.linked ? times.makespan : 0);
        seeds.push_back(std::move(times));
      } else {
        candidates_.push_back(std::move(candidate));
      }
      named[i].schedule.ranks = {};
    }
    const bool fused = cheaper_fused(layout);
    search(problem, seeds, fused ? budget / 2 : budget);
    if (fused) search(make_problem(request_, layout, false), seeds, budget / 2);
  }

  // Split, everything can be placed that B can, unless B costs less than its halves.
  bool cheaper_fused(const Layout& layout) const {
    for (ChunkId chunk(0); chunk.value < layout.num_chunks(); chunk = chunk.next()) {
      if (request_.costs.time_of(Op::backward, chunk) <
          request_.costs.time_of(Op::backward_input, chunk) + request_.costs.time_of(Op::backward_weight, chunk)) {
        return true;
      }
    }
    return false;
  }

  void search(const ListProblem& given, std::vector<StrictTimes> seeds, std::int64_t budget) {
    const int bits = spare_bits(given);
    const ListProblem problem = shortened_times(given, bits);
    for (StrictTimes& seed : seeds) {
      for (std::vector<std::int64_t>& starts : seed.start) {
        for (std::int64_t& start : starts)
          start >>= bits;
      }
    }
    const std::vector<ListResult> found = search_orders(problem, seeds, budget, most_found,
                                                        [&](std::int64_t spent) { progress("search", spent, budget); });
    for (std::size_t i = 0; i < found.size(); ++i) {
      progress("simulate", i, found.size());
      const Schedule schedule = as_schedule(found[i], problem, "auto");
      consider(as_candidate("auto", schedule), schedule, problem.linked ? found[i].makespan << bits : 0);
    }
  }

  AutoCandidate as_candidate(std::string name, const Schedule& schedule) const {
    AutoCandidate candidate{std::move(name), schedule.layout.placement(), peak_memory(schedule, request_.memory), true,
                            std::nullopt};
    for (std::size_t rank = 0; rank < candidate.peak.size(); ++rank) {
      candidate.fits = candidate.fits && candidate.peak[rank] <= limit_of(request_, RankId(rank));
    }
    return candidate;
  }

  // `at_least`: the step cannot be shorter.
  void consider(AutoCandidate candidate, const Schedule& schedule, std::int64_t at_least) {
    if (!best_ || SimTime(at_least) < step_ || static_cast<std::int64_t>(schedule.num_actions()) <= small_step) {
      const Program program = lower(schedule, request_.depth, request_.policy,
                                    {.post_ahead = request_.post_ahead, .costs = request_.costs.plan_costs()});
      candidate.step = simulate(program, request_.costs, request_.simulation).step;
      if (!best_ || *candidate.step < step_) {
        best_ = schedule;
        step_ = *candidate.step;
        chosen_ = candidates_.size();
      }
    }
    candidates_.push_back(std::move(candidate));
  }

  void progress(std::string_view phase, std::size_t done, std::size_t total) const {
    progress(phase, static_cast<std::int64_t>(done), static_cast<std::int64_t>(total));
  }
  void progress(std::string_view phase, std::int64_t done, std::int64_t total) const {
    if (request_.progress) request_.progress({phase, done, total});
  }

  const AutoRequest& request_;
  std::vector<AutoCandidate> candidates_;
  std::optional<Schedule> best_;
  SimTime step_{0};
  std::optional<std::int64_t> bound_;
  std::size_t chosen_ = 0;
};

}  // namespace

MemoryTooSmall::MemoryTooSmall(RankId rank, std::int64_t needed, std::int64_t limit, MemoryUnit unit)
    : InputError(shortage_text(rank, needed, limit, unit)), rank_(rank), needed_(needed), limit_(limit) {}

std::vector<std::int64_t> peak_memory(const Schedule& schedule, std::span<const ChunkMemory> memory) {
  const auto of = [&](const Compute& compute) -> const ChunkMemory& {
    return memory.size() == 1 ? memory.front() : memory[compute.chunk.index()];
  };
  std::vector<std::int64_t> peaks;
  for (const std::vector<Action>& actions : schedule.ranks) {
    std::int64_t used = 0;
    std::int64_t peak = 0;
    const auto begin = [&](const Compute& compute) {
      if (compute.op == Op::forward) used += of(compute).held;
    };
    const auto end = [&](const Compute& compute) {
      const ChunkMemory& chunk = of(compute);
      if (compute.op == Op::backward || (schedule.forward_only && compute.op == Op::forward)) used -= chunk.held;
      if (compute.op == Op::backward_input) used -= chunk.held - chunk.kept;
      if (compute.op == Op::backward_weight) used -= chunk.kept;
    };
    for (const Action& action : actions) {
      // The halves of a pair share the device: both are there before either ends.
      begin(action.first);
      if (action.second) begin(*action.second);
      peak = std::max(peak, used);
      end(action.first);
      if (action.second) end(*action.second);
    }
    peaks.push_back(peak);
  }
  return peaks;
}

AutoSchedule auto_schedule(const AutoRequest& request) { return Chooser(request).run(); }

}  // namespace plumb
