// SPDX-License-Identifier: Apache-2.0
#include "setup.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "auto.hpp"
#include "costs.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/rehearsal/launch.hpp"
#include "plumb/schedule/error.hpp"
#include "resolve.hpp"
#include "stamp.hpp"

namespace plumb::rehearsal {
namespace {

constexpr std::int64_t most_unit_bytes = std::int64_t{1} << 30;
constexpr int most_ranks = 512;

std::set<char> ops_of(const Schedule& schedule) {
  std::set<char> ops;
  for (const auto& rank : schedule.ranks) {
    for (const Action& action : rank) {
      ops.insert(letter(action.first.op));
      if (action.second) ops.insert(letter(action.second->op));
    }
  }
  return ops;
}

bool names(std::string_view action_us, char op) {
  return action_us.find(fmt::format("{}=", op)) != std::string_view::npos;
}

// Without --action-us every op has its default; with it, whatever the schedule does must have been named.
void require_costs(const cli::Options& options, const Schedule& schedule, const ActionTimes& times) {
  const std::string& text = options.action_us;
  for (const char op : ops_of(schedule)) {
    const bool halves = op == 'B' && names(text, 'I') && names(text, 'W');
    if (!text.empty() && !names(text, op) && !halves) {
      throw InputError(fmt::format("--action-us '{}' has no cost of {}, which {} runs: add {}=MICROSECONDS", text, op,
                                   schedule.name, op));
    }
    const SimTime time = op == 'F'   ? times.forward
                         : op == 'B' ? times.backward
                         : op == 'I' ? times.backward_input
                                     : times.backward_weight;
    if (time <= SimTime(0)) {
      throw InputError(fmt::format("--action-us: {} takes no time; legal in a rehearsal are times above 0", op));
    }
  }
}

SlotShape resolve_shape(const cli::Options& options) {
  const Storage storage = options.dtype == "bf16"   ? Storage::bf16
                          : options.dtype == "fp16" ? Storage::fp16
                          : options.dtype == "fp64" ? Storage::fp64
                                                    : Storage::fp32;
  const auto element = static_cast<std::int64_t>(bytes_per_element(storage));
  const std::int64_t bytes = options.unit_bytes;
  if (bytes < least_unit_bytes || bytes > most_unit_bytes || bytes % element != 0) {
    const std::int64_t nearest =
        std::clamp((bytes + element / 2) / element * element, least_unit_bytes, most_unit_bytes);
    throw InputError(fmt::format("--unit-bytes is {}, legal are multiples of {} ({}) from {} to {}; the nearest is {}",
                                 bytes, element, options.dtype, least_unit_bytes, most_unit_bytes, nearest));
  }
  return {1, bytes / element, storage};
}

Impairment resolve_impairment(const cli::Options& options) {
  const std::string name = options.impair.value_or("none");
  std::string legal;
  for (const ImpairmentName& each : all_impairments()) {
    if (name == each.name) return each.impairment;
    legal += fmt::format("{}{}", legal.empty() ? "" : ", ", each.name);
  }
  throw InputError(fmt::format("--impair '{}' is unknown, legal are {}", name, legal));
}

bool is_of_links(Impairment impairment) { return impairment != Impairment::none && impairment != Impairment::lanes; }

bool is_stream(Impairment impairment) {
  return impairment == Impairment::single_stream || impairment == Impairment::unplanned_stream;
}

// What the emulation does, and how the simulator is told of it. Always the executor posts each lane of an edge in the
// order of the program; that is the whole impairment where the program has been left one lane.
void impair(Setup& setup) {
  RehearsalPlan& plan = setup.plan;
  setup.sim.order = ChannelOrder::fifo_per_lane;
  if (setup.impairment == Impairment::priority) plan.urgent_first = setup.sim.urgent_first = false;
  if (setup.impairment == Impairment::overlap) {
    plan.communication_waits_for_compute = setup.sim.communication_waits_for_compute = true;
  }
  if (is_stream(setup.impairment)) {
    plan.single_stream = true;
    setup.sim.order = ChannelOrder::single_stream;
    setup.sim.duplex = Duplex::half;
  }
}

bool resolve_links(const cli::Options& options) {
  if (options.links == "emulated") return true;
  if (options.links == "real") return false;
  throw InputError(fmt::format("--links '{}' is unknown, legal are emulated and real", options.links));
}

std::string gibibytes(std::int64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / static_cast<double>(std::int64_t{1} << 30));
}

void require_memory_for_slots(std::int64_t needed, std::int64_t available, const Layout& layout,
                              const cli::Options& options, const char* at_least) {
  if (needed <= available) return;
  throw InputError(
      fmt::format("{} ranks with slots of {} bytes need {}{} of memory, {} are available: give fewer --pp "
                  "or --microbatches, or a smaller --unit-bytes",
                  layout.pp(), options.unit_bytes, at_least, gibibytes(needed), gibibytes(available)));
}

// Nothing of a rehearsal's own takes longer than ten times what its computations do, and never less than this.
std::chrono::nanoseconds wait_limit(const SimTime step) {
  const auto predicted = std::chrono::duration_cast<std::chrono::nanoseconds>(step);
  return std::max<std::chrono::nanoseconds>(std::chrono::seconds(10), 10 * predicted);
}

CostModel emulated_costs(const cli::Options& options, const cli::Depth& depth, const ActionTimes& times,
                         const SlotShape& shape) {
  const UnitBytes of_model = cli::resolve_bytes(options, depth.hidden);
  if (of_model.gradient_wire != of_model.gradient_slot) {
    throw InputError(
        "--grad-wire storage is not rehearsed: gradients cross ranks as they lie in their slots, use fp32");
  }
  if (options.unit_us && *options.unit_us == 0) {
    throw InputError("--unit-us is 0; legal are times above 0, and --hop-GBps inf for links that are never busy");
  }
  const auto gradient = static_cast<std::int64_t>(shape.gradient_bytes());
  return CostModel(times, cli::resolve_link(options, of_model),
                   {static_cast<std::int64_t>(shape.value_bytes()), gradient, gradient});
}

}  // namespace

std::span<const ImpairmentName> all_impairments() {
  static constexpr ImpairmentName names[] = {
      {Impairment::none, "none", ""},
      {Impairment::lanes, "lanes", "urgent and bulk messages share one queue per edge"},
      {Impairment::priority, "priority", "urgent messages do not go first"},
      {Impairment::overlap, "overlap", "communication waits for computation"},
      {Impairment::single_stream, "single-stream", "one communication stream per rank, programs planned for it"},
      {Impairment::unplanned_stream, "unplanned-stream",
       "one communication stream per rank, programs planned for lanes"},
  };
  return names;
}

const ImpairmentName& name_of(Impairment impairment) { return all_impairments()[static_cast<std::size_t>(impairment)]; }

Program with_one_lane(Program program) {
  for (Transfer& transfer : program.routing.transfers)
    transfer.lane = MessageLane::urgent;
  for (RankProgram& rank : program.ranks) {
    for (CommStep& step : rank.comm)
      step.lane = MessageLane::urgent;
  }
  return program;
}

std::int64_t available_memory_bytes() {
  std::int64_t available = std::numeric_limits<std::int64_t>::max();
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("MemAvailable:")) continue;
    available = std::strtoll(line.c_str() + std::string_view("MemAvailable:").size(), nullptr, 10) * 1024;
  }
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  std::ifstream used("/sys/fs/cgroup/memory.current");
  std::int64_t most = 0;
  std::int64_t current = 0;
  if (limit >> most && used >> current) available = std::min(available, std::max<std::int64_t>(0, most - current));
  return available;
}

Setup make_setup(const cli::Options& options, std::int64_t available_bytes) {
  const Layout layout = cli::resolve_layout(options);
  if (layout.pp() > most_ranks) {
    throw InputError(fmt::format("--pp is {}, a rehearsal takes 1 to {} ranks", layout.pp(), most_ranks));
  }
  if (options.steps < 1 || options.steps > 100000) {
    throw InputError(fmt::format("--steps is {}, legal are 1 to 100000", options.steps));
  }
  if (options.costs) throw InputError("--costs is not rehearsed: give --action-us");
  const Schedule schedule = cli::wants_auto(options) ? cli::search_schedule(options, layout).schedule
                                                     : cli::resolve_schedule(options, layout);
  const cli::Depth depth = cli::resolve_depth(options, layout);
  const ActionTimes times = cli::resolve_times(options);
  require_costs(options, schedule, times);
  const SlotShape shape = resolve_shape(options);
  CostModel costs = emulated_costs(options, depth, times, shape);
  const Impairment impairment = resolve_impairment(options);
  LowerOptions lowering{.post_ahead = options.post_ahead, .costs = costs.plan_costs()};
  if (impairment == Impairment::single_stream) lowering.costs.duplex = Duplex::half;
  const Policy policy = cli::resolve_policy(options, depth.map);
  // Before planning, which may take long: every rank has a value and a gradient at least.
  const auto one_of_each = static_cast<std::int64_t>(shape.value_bytes() + shape.gradient_bytes());
  require_memory_for_slots(layout.pp() * one_of_each, available_bytes, layout, options, "at least ");

  Setup setup{.plan = {.program = nullptr, .costs = costs, .shape = shape}, .sim = {}, .depth = {}, .schedule = {}};
  setup.depth = depth.description;
  setup.schedule = schedule.name;
  setup.impairment = impairment;
  setup.emulate_links = resolve_links(options);
  if (is_of_links(impairment) && !setup.emulate_links) {
    throw InputError(fmt::format("--impair {} needs --links emulated", name_of(impairment).name));
  }
  Program program = lower(schedule, depth.map, policy, lowering);
  if (setup.impairment == Impairment::lanes) program = with_one_lane(std::move(program));
  setup.plan.program = std::make_shared<const Program>(std::move(program));
  if (policy != Policy::standard) {
    const DepthMap plain(depth.map.sublayers(), depth.map.block_sublayers(),
                         {depth.map.cuts().begin(), depth.map.cuts().end()}, Residual::standard);
    setup.plan.baseline = std::make_shared<const Program>(lower(schedule, plain, Policy::standard, lowering));
  }
  setup.plan.steps = options.steps;
  impair(setup);
  require_memory_for_slots(memory_needed_bytes(setup.plan), available_bytes, layout, options, "");
  setup.plan.wait_limit = wait_limit(simulate(*setup.plan.program, setup.plan.costs, setup.sim).step);
  return setup;
}

}  // namespace plumb::rehearsal
