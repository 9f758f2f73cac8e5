// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <ostream>

#include <fmt/format.h>

#include "commands.hpp"
#include "output.hpp"
#include "plumb/cache/encode.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/compute_csv.hpp"
#include "plumb/schedule/error.hpp"
#include "resolve.hpp"

namespace plumb::cli {

namespace {

struct Phases {
  int warmup = 0;    // forwards before the first backward
  int steady = 0;    // computations from there to the last forward
  int cooldown = 0;  // backwards after it
  int peak = 0;      // most chunk activations alive
};

Phases phases_of(const RankProgram& rank) {
  Phases phases;
  int alive = 0;
  const auto& steps = rank.compute;
  const auto is_forward = [](const ComputeStep& step) { return step.compute.op == Op::forward; };
  const auto first_backward = std::find_if_not(steps.begin(), steps.end(), is_forward);
  const auto last_forward = std::find_if(steps.rbegin(), steps.rend(), is_forward).base();
  phases.warmup = static_cast<int>(first_backward - steps.begin());
  phases.steady = static_cast<int>(std::max(last_forward, first_backward) - first_backward);
  phases.cooldown = static_cast<int>(steps.size()) - phases.warmup - phases.steady;
  for (const ComputeStep& step : steps) {
    alive += is_forward(step) ? 1 : 0;
    phases.peak = std::max(phases.peak, alive);
    alive -= step.compute.op == Op::backward || step.compute.op == Op::backward_weight ? 1 : 0;
  }
  return phases;
}

std::string row_of_actions(const RankProgram& rank) {
  constexpr std::size_t shown = 24;
  std::string text;
  for (std::size_t i = 0; i < std::min(shown, rank.compute.size()); ++i) {
    text += (i == 0 ? "" : " ") + to_string(rank.compute[i].compute);
  }
  if (rank.compute.size() > shown) {
    text += fmt::format(" .. ({} more)", rank.compute.size() - shown);
  }
  return text;
}

std::string text_of(const Program& program, const Depth& depth) {
  std::string out = fmt::format(
      "{}\n{}: {} ranks x {} virtual stages, {} microbatches, routing {}, {} messages per step\nprogram digest {}\n\n",
      depth.description, program.schedule_name, program.layout.pp(), program.layout.vp(), program.layout.microbatches(),
      to_string(program.routing.policy), program.messages.size(), to_string(digest(program)));
  Table table({"rank", "warm-up", "steady", "cool-down", "peak activations", "value slots", "gradient slots",
               "urgent sends", "bulk sends", "adds"});
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const RankProgram& rank = program.ranks[r];
    const Phases phases = phases_of(rank);
    const auto count = [&](CommKind kind, MessageLane lane) {
      return std::count_if(rank.comm.begin(), rank.comm.end(),
                           [&](const CommStep& step) { return step.kind == kind && step.lane == lane; });
    };
    table.add({fmt::to_string(r), fmt::to_string(phases.warmup), fmt::to_string(phases.steady),
               fmt::to_string(phases.cooldown), fmt::to_string(phases.peak), fmt::to_string(rank.num_value_slots),
               fmt::to_string(rank.num_gradient_slots), fmt::to_string(count(CommKind::send, MessageLane::urgent)),
               fmt::to_string(count(CommKind::send, MessageLane::bulk)),
               fmt::to_string(std::count_if(rank.comm.begin(), rank.comm.end(),
                                            [](const CommStep& step) { return step.kind == CommKind::add; }))});
  }
  out += table.text() + "\n";
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    out += fmt::format("rank {}: {}\n", r, row_of_actions(program.ranks[r]));
  }
  return out;
}

}  // namespace

int run_plan(const Options& options) {
  const std::string format = options.json ? "json" : options.format;
  if (format != "text" && format != "csv" && format != "json") {
    throw InputError(fmt::format("--format '{}' is unknown, legal are text, csv and json", format));
  }
  if (options.json && options.format != "text" && options.format != "json") {
    throw InputError(fmt::format("--json and --format {} exclude each other", options.format));
  }
  const Layout layout = resolve_layout(options);
  const Schedule schedule = resolve_schedule(options, layout);
  std::string text;
  if (format == "csv") {
    text = write_compute_csv(schedule);
  } else {
    const Depth depth = resolve_depth(options, layout);
    const Program program =
        lower(schedule, depth.map, resolve_policy(options, depth.map), {.post_ahead = options.post_ahead});
    text = format == "json" ? program_to_json(program) + "\n" : text_of(program, depth);
  }
  if (options.output.empty() || options.output == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else {
    write_file(options.output, [&](std::ostream& out) { out << text; });
  }
  return 0;
}

}  // namespace plumb::cli
