// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/auto_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
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
    // Shared among all that may be used, whether or not they are feasible: the shares must not depend on the limit.
    const auto share = static_cast<std::int64_t>(std::max<std::size_t>(request_.placements.size(), 1));
    for (const Layout& layout : layouts)
      try_layout(layout, request_.budget / share);
    AutoSchedule result{std::move(*best_), step_, SimTime(*bound_), candidates_[chosen_].peak, {}, chosen_};
    result.candidates = std::move(candidates_);
    return result;
  }

 private:
  // Small steps are simulated for every named order, so that the table is complete.
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
    std::vector<Start> starts;
    std::set<std::int64_t> peaks;
    for (std::size_t i = 0; i < named.size(); ++i) {
      progress("named", i, named.size());
      AutoCandidate candidate = as_candidate(named[i].name, named[i].schedule);
      const std::int64_t peak = *std::max_element(candidate.peak.begin(), candidate.peak.end());
      peaks.insert(peak);
      if (candidate.fits) {
        StrictTimes times = strict_times(named[i].schedule, request_, problem);
        consider(std::move(candidate), named[i].schedule, problem.linked ? times.makespan : 0);
        starts.push_back({named[i].name, std::move(times), peak});
      } else {
        candidates_.push_back(std::move(candidate));
      }
      named[i].schedule.ranks = {};
    }
    const bool fused = cheaper_fused(layout);
    search(problem, starts, peaks, bound, fused ? budget / 2 : budget);
    if (fused) search(make_problem(request_, layout, false), starts, peaks, bound, budget / 2);
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

  // A known order to search from.
  struct Start {
    std::string name;
    StrictTimes times;
    std::int64_t peak = 0;
  };

  // The limits to search under, ascending to the request's own: those at which a named order first fits, and some in
  // between. They depend on the problem only, and so does what is found under each of them, from what was found under
  // those before: a looser limit searches what a tighter one does and more, so it cannot end worse. `peaks`: what the
  // named orders hold.
  static std::vector<std::int64_t> ladder(const ListProblem& problem, const std::set<std::int64_t>& peaks) {
    const std::int64_t own = problem.limit.front();
    std::int64_t least = 0;
    for (RankId rank(0); rank.value < problem.layout.pp(); rank = rank.next()) {
      std::int64_t needed = 0;
      for (const ChunkId chunk : problem.layout.chunks_on(rank))
        needed += problem.held[chunk.index()];
      least = std::max(least, needed);
    }
    const std::int64_t most = peaks.empty() ? least : *peaks.rbegin();
    std::set<std::int64_t> limits(peaks.begin(), peaks.upper_bound(own));
    limits.insert(least);
    for (std::int64_t limit = least; limit < most && limit <= own;) {
      limits.insert(limit);
      limit = std::max(limit + 1, limit + limit / 20 * 3 + limit % 20 * 3 / 20);
    }
    if (own == no_memory_limit) limits.insert(own);
    return {limits.begin(), limits.end()};
  }

  void search(const ListProblem& given, const std::vector<Start>& named, const std::set<std::int64_t>& peaks,
              std::int64_t bound, std::int64_t budget) {
    if (best_ && step_ <= SimTime(bound)) return;  // nothing can be faster
    // Limits of their own for each rank are no ladder, and a large step would have to be searched too often.
    constexpr std::int64_t fewest_tries = 1000;
    if (request_.memory_limit.size() > 1 || given.num_computes() * fewest_tries > request_.budget) {
      search_under(given, named, budget, 0, 1);
      return;
    }
    const std::vector<std::int64_t> limits = ladder(given, peaks);
    std::vector<Start> found;
    for (std::size_t i = 0; i < limits.size(); ++i) {
      ListProblem problem = given;
      problem.limit.assign(problem.limit.size(), limits[i]);
      std::vector<Start> starts = std::move(found);
      std::copy_if(named.begin(), named.end(), std::back_inserter(starts),
                   [&](const Start& start) { return start.peak <= limits[i]; });
      const bool is_natural = peaks.contains(limits[i]) || limits[i] == no_memory_limit;
      found = search_under(problem, starts, is_natural ? budget / 2 : budget / 16, i, limits.size());
      // More memory gains next to nothing. Judged by what every request finds that comes so far.
      if (std::any_of(found.begin(), found.end(),
                      [&](const Start& start) { return start.times.makespan <= bound + bound / 4096; })) {
        return;
      }
    }
  }

  // What it returns is what it found, to go on from.
  std::vector<Start> search_under(const ListProblem& given, const std::vector<Start>& starts, std::int64_t budget,
                                  std::size_t turn, std::size_t turns) {
    const int bits = spare_bits(given);
    const ListProblem problem = shortened_times(given, bits);
    std::vector<StrictTimes> seeds;
    for (const Start& start : starts) {
      StrictTimes& seed = seeds.emplace_back(start.times);
      for (std::vector<std::int64_t>& of_op : seed.start) {
        for (std::int64_t& at : of_op)
          at >>= bits;
      }
    }
    const auto total = static_cast<std::int64_t>(turns) * budget;
    const std::vector<FoundOrder> orders = search_orders(problem, seeds, budget, most_found, [&](std::int64_t spent) {
      progress("search", static_cast<std::int64_t>(turn) * budget + std::min(spent, budget), total);
    });
    std::vector<Start> found;
    for (const FoundOrder& order : orders) {
      const Schedule schedule = as_schedule(order.result, problem, "auto");
      AutoCandidate candidate = as_candidate("auto", schedule);
      candidate.from = order.seed < 0 ? "a rule of its own" : starts[static_cast<std::size_t>(order.seed)].name;
      found.push_back({candidate.from, times_of(order.result, given, bits), 0});
      consider(std::move(candidate), schedule, given.linked ? order.result.makespan << bits : 0);
    }
    return found;
  }

  static StrictTimes times_of(const ListResult& result, const ListProblem& problem, int bits) {
    StrictTimes times{.start = {}, .makespan = result.makespan << bits};
    for (std::vector<std::int64_t>& starts : times.start)
      starts.assign(problem.chunks() * problem.microbatches(), 0);
    for (const std::vector<ListCompute>& rank : result.ranks) {
      for (const ListCompute& compute : rank) {
        times.start[static_cast<std::size_t>(compute.op)]
                   [problem.at(static_cast<std::size_t>(compute.chunk), static_cast<std::size_t>(compute.microbatch))] =
            compute.start << bits;
      }
    }
    return times;
  }

  AutoCandidate as_candidate(std::string name, const Schedule& schedule) const {
    AutoCandidate candidate;
    candidate.name = std::move(name);
    candidate.placement = schedule.layout.placement();
    candidate.peak = peak_memory(schedule, request_.memory);
    candidate.fits = true;
    for (std::size_t rank = 0; rank < candidate.peak.size(); ++rank) {
      candidate.fits = candidate.fits && candidate.peak[rank] <= limit_of(request_, RankId(rank));
    }
    return candidate;
  }

  // `at_least`: the step cannot be shorter.
  void consider(AutoCandidate candidate, const Schedule& schedule, std::int64_t at_least) {
    const bool in_table = candidate.name != "auto" && static_cast<std::int64_t>(schedule.num_actions()) <= small_step;
    if (!best_ || SimTime(at_least) < step_ || in_table) {
      PlanCosts plan = request_.costs.plan_costs();
      plan.duplex = request_.simulation.duplex;
      const Program program =
          lower(schedule, request_.depth, request_.policy, {.post_ahead = request_.post_ahead, .costs = plan});
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
