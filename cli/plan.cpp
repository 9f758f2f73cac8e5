// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <iostream>
#include <ostream>

#include <fmt/format.h>

#include "auto.hpp"
#include "commands.hpp"
#include "costs.hpp"
#include "output.hpp"
#include "plan_text.hpp"
#include "plumb/cache/comms_program.hpp"
#include "plumb/cache/encode.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/comms_csv.hpp"
#include "plumb/schedule/compute_csv.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/simulate.hpp"
#include "plumb/simulator/svg_timeline.hpp"
#include "plumb/simulator/trace.hpp"
#include "resolve.hpp"

namespace plumb::cli {

namespace {

constexpr std::array<std::string_view, 6> formats = {"text", "csv", "csv-comms", "json", "svg", "trace"};

std::string resolve_format(const Options& options) {
  const std::string format = options.json ? "json" : options.format;
  if (std::find(formats.begin(), formats.end(), format) == formats.end()) {
    throw InputError(fmt::format("--format '{}' is unknown, legal are {}", format, fmt::join(formats, ", ")));
  }
  if (options.json && options.format != "text" && options.format != "json") {
    throw InputError(fmt::format("--json and --format {} exclude each other", options.format));
  }
  return format;
}

bool gives_costs(const Options& options) { return gives_link(options) || !options.action_us.empty(); }

// An order alone, in torch's format: nothing in it has times, unless the search made it for them.
void refuse_costs_of_csv(const Options& options) {
  if (gives_costs(options) && !wants_auto(options)) {
    throw InputError(
        "a CSV has no times: --action-us, --hop-us, --hop-GBps and --unit-us go with --format csv only for --schedule "
        "auto");
  }
}

// A program, and the step that it takes under the costs of the flags.
struct Planned {
  Schedule schedule;
  Depth depth;
  CostModel costs;

  Program lowered(const Options& options, const PlanCosts& plan) const {
    return lower(schedule, depth.map, resolve_policy(options, depth.map),
                 {.post_ahead = options.post_ahead, .costs = plan});
  }
  // As the runtime lowers it, unless costs are given.
  Program program(const Options& options) const {
    return lowered(options, gives_costs(options) ? costs.plan_costs() : PlanCosts{});
  }
  // For the costs it is simulated with.
  Program program_to_simulate(const Options& options) const { return lowered(options, costs.plan_costs()); }
};

std::string costs_text(const Options& options, const CostModel& costs) {
  const ChunkId chunk;
  const auto us = [&](Op op) { return to_us(costs.time_of(op, chunk)); };
  std::string text = fmt::format("F, I, W, B = {:g}, {:g}, {:g}, {:g} \u00b5s per chunk; ", us(Op::forward),
                                 us(Op::backward_input), us(Op::backward_weight), us(Op::backward));
  if (!gives_link(options)) return text + "messages are free";
  const Link& link = costs.link(RankId(0), RankId(0));
  return text + fmt::format("a message takes {:g} \u00b5s and {:g} \u00b5s per tensor", to_us(link.latency),
                            to_us(link.value_unit));
}

std::string svg_of(const Options& options, const Planned& planned, const Program& program) {
  SvgOptions drawing{.title = planned.schedule.name, .subtitle = costs_text(options, planned.costs), .messages = true};
  if (program.routing.policy != Policy::standard) {
    drawing.title += fmt::format(", routing {}", to_string(program.routing.policy));
    drawing.subtitle = planned.depth.description + "; " + drawing.subtitle;
  }
  return svg_timeline(program, simulate(program, planned.costs), drawing);
}

void write_plan_trace(const Options& options, const Planned& planned) {
  const Program program = planned.program_to_simulate(options);
  const Timeline timeline = simulate(program, planned.costs);
  const auto write = [&](std::ostream& out) { write_trace(out, program, planned.costs, timeline); };
  if (options.output.empty() || options.output == "-") {
    write(std::cout);
    std::cout.flush();
  } else {
    write_file(options.output, write);
  }
}

std::string text_of(const Options& options, const Planned& planned) {
  const Program simulated = planned.program_to_simulate(options);
  const SimReport report = make_report(simulated, planned.costs, simulate(simulated, planned.costs));
  std::optional<ScheduleRequest> request;
  if (!wants_auto(options) && !options.costs) request = resolve_request(options, simulated.layout.vp());
  return plan_text(planned.program(options), planned.depth, request, planned.costs, report);
}

}  // namespace

int run_plan(const Options& options) {
  const std::string format = resolve_format(options);
  if (options.compare) {
    return run_compare_schedules(options);
  }
  const Layout layout = resolve_layout(options);
  if (format == "csv") refuse_costs_of_csv(options);
  Schedule schedule = resolve_schedule(options, layout);
  Depth depth = format == "json" ? resolve_depth(options, layout) : resolve_depth_or_none(options, layout);
  const UnitBytes bytes = resolve_bytes(options, depth.hidden);
  CostModel costs = resolve_plan_costs(options, depth.map, bytes);
  (void)resolve_policy(options, depth.map);
  const Planned planned{std::move(schedule), std::move(depth), std::move(costs)};
  if (format == "csv") {
    write_output(options.output, write_compute_csv(planned.schedule));
  } else if (format == "csv-comms") {
    write_output(options.output, write_comms_csv(comms_schedule(planned.program(options))));
  } else if (format == "trace") {
    write_plan_trace(options, planned);
  } else if (format == "json") {
    write_output(options.output, program_to_json(planned.program(options)) + "\n");
  } else if (format == "svg") {
    write_output(options.output, svg_of(options, planned, planned.program_to_simulate(options)));
  } else {
    write_output(options.output, text_of(options, planned));
  }
  return 0;
}

}  // namespace plumb::cli
