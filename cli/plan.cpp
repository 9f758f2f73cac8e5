// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <iostream>
#include <ostream>

#include <fmt/format.h>

#include "auto.hpp"
#include "commands.hpp"
#include "costs.hpp"
#include "memory.hpp"
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
#include "schedule_file.hpp"

namespace plumb::cli {

namespace {

constexpr std::array<std::string_view, 6> formats = {"text", "csv", "csv-comms", "json", "svg", "trace"};

Product product_of(const std::string& format) {
  if (format == "csv") return Product::table;
  if (format == "json") return Product::json;
  return format == "text" ? Product::text : Product::simulation;
}

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

// An order alone, in torch's format: nothing in it has times, unless the search made it for them.
void refuse_costs_of_csv(const Options& options) {
  if (gives_costs(options) && !wants_auto(options)) {
    throw InputError(
        "a CSV has no times: --action-us, --costs, --hop-us, --hop-GBps and --unit-us go with --format csv only for "
        "--schedule auto");
  }
}

// A program, and the step that it takes under the costs of the flags.
struct Planned {
  Schedule schedule;
  Depth depth;
  CostModel costs;
  std::string found;  // what auto chose, in words; else empty

  Program lowered(const Options& options, const PlanCosts& plan) const {
    return lower_as_given(options, schedule, depth.map, {.post_ahead = options.post_ahead, .costs = plan});
  }
  // As the runtime lowers it, unless costs are given.
  Program program(const Options& options) const {
    return lowered(options, gives_costs(options) ? costs.plan_costs() : PlanCosts{});
  }
  // For the costs it is simulated with.
  Program program_to_simulate(const Options& options) const { return lowered(options, costs.plan_costs()); }
};

std::string svg_of(const Options& options, const Planned& planned, const Program& program) {
  SvgOptions drawing{
      .title = planned.schedule.name, .subtitle = costs_text(options, planned.costs, "\u00b5s"), .messages = true};
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
  if (!wants_auto(options) && !options.costs && !options.schedule_file)
    request = resolve_request(options, simulated.layout.vp());
  return plan_text(planned.program(options), planned.depth,
                   {.request = request, .costs = costs_text(options, planned.costs), .found = planned.found},
                   planned.costs, report);
}

}  // namespace

int run_plan(const Options& options) {
  const std::string format = resolve_format(options);
  require_files_apart({{"--output", options.output == "-" ? "" : options.output}}, files_read(options), false);
  if (options.compare) {
    return run_compare_schedules(options);
  }
  const Layout layout = resolve_layout(options);
  if (format == "csv") refuse_costs_of_csv(options);
  Depth depth = resolve_depth_or_none(options, layout);
  require_memory(
      bytes_needed(product_of(format), layout, depth.map, resolve_policy(options, depth.map), splits_backward(options)),
      fmt::format("--format {} of {}", format, size_text(layout)));
  const UnitBytes bytes = resolve_bytes(options, depth.hidden);
  CostModel costs = resolve_plan_costs(options, depth.map, bytes);
  std::string found;
  Schedule schedule = [&] {
    if (!wants_auto(options)) return resolve_schedule(options, layout);
    AutoSchedule searched = search_schedule(options, layout);
    found = choice_of(searched);
    return std::move(searched.schedule);
  }();
  const Planned planned{std::move(schedule), std::move(depth), std::move(costs), std::move(found)};
  // The other formats have no place for it.
  if (!planned.found.empty() && format != "text") fmt::print(stderr, "{}\n", planned.found);
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
