// SPDX-License-Identifier: Apache-2.0
#include "plan_text.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "costs.hpp"
#include "output.hpp"
#include "plumb/cache/encode.hpp"
#include "plumb/schedule/formulas.hpp"

namespace plumb::cli {

namespace {

// In computations; an overlapped pair counts as its two.
struct Phases {
  std::int64_t warmup = 0;    // forwards before the first backward
  std::int64_t steady = 0;    // from there to the last forward
  std::int64_t cooldown = 0;  // what follows
  std::int64_t peak = 0;      // most chunk activations alive
};

Phases phases_of(const RankProgram& rank) {
  const std::vector<ComputeStep>& steps = rank.compute;
  std::size_t first_backward = steps.size();
  std::size_t after_last_forward = 0;
  Phases phases;
  std::int64_t alive = 0;
  for (std::size_t i = 0; i < steps.size();) {
    const std::size_t end = std::min(i + (steps[i].overlaps_next ? 2 : 1), steps.size());
    std::int64_t freed = 0;
    bool has_backward = false;
    for (std::size_t j = i; j < end; ++j) {
      const Op op = steps[j].compute.op;
      if (op == Op::forward) {
        ++alive;
        after_last_forward = end;
      } else {
        has_backward = true;
        freed += op == Op::backward_input ? 0 : 1;
      }
    }
    if (has_backward) first_backward = std::min(first_backward, i);
    phases.peak = std::max(phases.peak, alive);
    alive -= freed;
    i = end;
  }
  phases.warmup = static_cast<std::int64_t>(first_backward);
  phases.steady = static_cast<std::int64_t>(std::max(after_last_forward, first_backward) - first_backward);
  phases.cooldown = static_cast<std::int64_t>(steps.size()) - phases.warmup - phases.steady;
  return phases;
}

// How steady and cool-down counts follow from P, M and r, where the order is regular enough; checked on every rank
// before it is told.
std::string steady_formula(const Program& program, const std::vector<Phases>& phases) {
  const std::int64_t forwards = std::int64_t{program.layout.microbatches()} * program.layout.vp();
  const std::int64_t pp = program.layout.pp();
  const auto on_all_ranks = [&](auto&& holds) {
    for (std::size_t r = 0; r < phases.size(); ++r) {
      if (!holds(phases[r], static_cast<std::int64_t>(r), forwards - phases[r].warmup)) return false;
    }
    return true;
  };
  if (on_all_ranks([](const Phases& p, std::int64_t, std::int64_t left) {
        return p.steady == 2 * left && p.cooldown == p.warmup;
      })) {
    return "steady    2(M V - warm-up), backward and forward in turn; cool-down = warm-up";
  }
  if (on_all_ranks([](const Phases& p, std::int64_t r, std::int64_t left) {
        return p.steady == 2 * left + std::max<std::int64_t>(0, left - r);
      })) {
    return "steady    2(M V - warm-up) + max(0, M V - warm-up - r), W lagging by r; cool-down = the rest";
  }
  if (on_all_ranks([&](const Phases& p, std::int64_t r, std::int64_t) { return p.cooldown == 2 * (pp + 1 + r); })) {
    return "cool-down 2(P+1+r); steady = the rest, from the first backward to the last forward";
  }
  if (on_all_ranks([&](const Phases& p, std::int64_t r, std::int64_t) { return p.cooldown == 2 * pp + 1 + r; })) {
    return "cool-down 2P+1+r; steady = the rest, from the first backward to the last forward";
  }
  return "steady    counted from the first backward to the last forward; cool-down = the rest";
}

std::string row_of_actions(const RankProgram& rank) {
  constexpr std::size_t shown = 24;
  std::string text;
  for (std::size_t i = 0; i < std::min(shown, rank.compute.size()); ++i) {
    text += (i == 0 ? "" : " ") + to_string(rank.compute[i].compute);
    text += rank.compute[i].overlaps_next ? " &" : "";
  }
  if (rank.compute.size() > shown) {
    text += fmt::format(" .. ({} more)", rank.compute.size() - shown);
  }
  return text;
}

std::string simulated_bubble(const SimReport& report) {
  std::string text = fmt::format("{} ms simulated", milliseconds(report.bubble.total()));
  text += fmt::format(" ({} of the step of {} ms", percent(report.bubble_over_step), milliseconds(report.step));
  text += report.bubble.waiting.count() > 0
              ? fmt::format("; {} ms of it waiting for messages)", milliseconds(report.bubble.waiting))
              : ")";
  return text;
}

bool has_empty_chunk(const DepthMap& depth) {
  for (ChunkId chunk; chunk.value < depth.num_chunks(); chunk = chunk.next()) {
    if (depth.sublayers_of(chunk).empty()) return true;
  }
  return false;
}

bool is_free(const CostModel& costs) {
  const Link& link = costs.link(RankId(0), RankId(0));
  return link.latency.count() == 0 && link.value_unit.count() == 0 && link.gradient_unit.count() == 0;
}

std::string bubble_text(const Program& program, const ScheduleRequest& request, const ScheduleFormulas& formulas,
                        const CostModel& costs, const SimReport& report) {
  const ChunkId chunk;
  const double backward_us = to_us(costs.time_of(Op::backward, chunk));
  const ChunkTimes times{.forward = to_us(costs.time_of(Op::forward, chunk)),
                         .backward_input = to_us(costs.time_of(Op::backward_input, chunk)),
                         .backward_weight = to_us(costs.time_of(Op::backward_weight, chunk))};
  std::optional<double> known;
  if (backward_us == times.backward_input + times.backward_weight) {
    known = bubble_by_formula(request, program.layout, times);
  }
  std::string text = fmt::format("bubble    {} per rank, ", formulas.bubble_text);
  if (has_empty_chunk(program.depth)) {
    text += "exact without empty chunks: not here";
  } else if (!known) {
    text += fmt::format("exact if {}: not here", formulas.bubble_rule);
  } else {
    text += fmt::format("exact {}: {:.3f} ms by formula", is_free(costs) ? "here" : "where messages are free",
                        *known / 1000);
  }
  return text + ", " + simulated_bubble(report);
}

}  // namespace

std::string plan_text(const Program& program, const Depth& depth, const PlanNotes& notes, const CostModel& costs,
                      const SimReport& report) {
  const std::optional<ScheduleRequest>& request = notes.request;
  const Layout& layout = program.layout;
  std::optional<ScheduleFormulas> formulas;
  if (request) formulas = formulas_of(*request, layout);
  std::string out = fmt::format(
      "{}\n{}: {} ranks x {} virtual stages ({} placement), {} microbatches, routing {}, {} messages per step\n"
      "program digest {}\n{}{}{}\n\n",
      depth.description, program.schedule_name, layout.pp(), layout.vp(), to_string(layout.placement()),
      layout.microbatches(), to_string(program.routing.policy), program.messages.size(), to_string(digest(program)),
      notes.costs, notes.found.empty() ? "" : "\n", notes.found);
  Table table({"rank", "warm-up", "steady", "cool-down", "peak activations", "by formula", "value slots",
               "gradient slots", "urgent sends", "bulk sends", "adds"});
  std::vector<Phases> phases;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const RankProgram& rank = program.ranks[r];
    phases.push_back(phases_of(rank));
    const auto count = [&](CommKind kind, MessageLane lane) {
      return std::count_if(rank.comm.begin(), rank.comm.end(),
                           [&](const CommStep& step) { return step.kind == kind && step.lane == lane; });
    };
    table.add({fmt::to_string(r), fmt::to_string(phases[r].warmup), fmt::to_string(phases[r].steady),
               fmt::to_string(phases[r].cooldown), fmt::to_string(phases[r].peak),
               formulas ? fmt::format("{}{}", formulas->peak_is_exact ? "" : "<=", formulas->peak[r]) : "-",
               fmt::to_string(rank.num_value_slots), fmt::to_string(rank.num_gradient_slots),
               fmt::to_string(count(CommKind::send, MessageLane::urgent)),
               fmt::to_string(count(CommKind::send, MessageLane::bulk)),
               fmt::to_string(std::count_if(rank.comm.begin(), rank.comm.end(),
                                            [](const CommStep& step) { return step.kind == CommKind::add; }))});
  }
  out += table.text();
  if (formulas) {
    out +=
        fmt::format("\nwarm-up   {} forwards on rank r\n{}\npeak      {} activations{}\n{}\n\n", formulas->warmup_text,
                    steady_formula(program, phases), formulas->peak_text, formulas->peak_is_exact ? "" : " at most",
                    bubble_text(program, *request, *formulas, costs, report));
  } else {
    out += fmt::format("\nbubble    {}\n\n", simulated_bubble(report));
  }
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    out += fmt::format("rank {}: {}\n", r, row_of_actions(program.ranks[r]));
  }
  return out;
}

}  // namespace plumb::cli
