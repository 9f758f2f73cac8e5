// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/check.hpp"

#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "exit.hpp"
#include "output.hpp"
#include "plumb/cache/deadlock.hpp"
#include "plumb/cache/encode.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/compute_csv.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t max_file_bytes = std::size_t{512} << 20;

struct Fault {
  int row = 0;
  std::size_t column = 0;
  std::string token;
  std::string why;
};

struct Answer {
  std::string subject;
  bool forward_only = false;
  std::vector<Fault> faults;
  std::vector<DeadlockReport> models;  // one per model tried
  std::vector<BlockedStep> cycle;      // of the schedule itself, or of the first model that deadlocks
  bool ok() const { return faults.empty() && cycle.empty(); }
};

std::vector<ChannelModel> resolve_models(const Options& options) {
  if (options.shared_fifo) {
    if (options.channels && *options.channels != "fifo-per-pair") {
      throw InputError("--shared-fifo goes with --channels fifo-per-pair");
    }
    return {ChannelModel::shared_fifo};
  }
  return options.channels ? std::vector{parse_channel_model(*options.channels)} : all_channel_models();
}

void try_models(const Program& program, const Options& options, Answer& answer) {
  for (const ChannelModel model : resolve_models(options)) {
    answer.models.push_back(check_deadlock(program, model));
    if (answer.models.back().deadlock && answer.cycle.empty()) {
      answer.cycle = answer.models.back().cycle;
    }
  }
}

Answer check_program_json(const std::string& text, const Options& options) {
  if (options.placement) {
    throw InputError("--placement goes with a CSV: a program states its own");
  }
  const Program program = program_from_json(text);
  Answer answer{.subject = fmt::format("program {}: {} ranks, {} messages", to_string(digest(program)),
                                       program.layout.pp(), program.messages.size()),
                .forward_only = program.forward_only,
                .faults = {},
                .models = {},
                .cycle = {}};
  for (const ProgramFault& fault : verify_program(program)) {
    answer.faults.push_back({fault.rank.value, static_cast<std::size_t>(fault.position), fault.token, fault.why});
  }
  try {
    try_models(program, options, answer);
  } catch (const InputError&) {  // indices out of range: nothing can be run, and the faults say so already
    if (answer.faults.empty()) {
      throw;
    }
  }
  return answer;
}

Answer check_csv(const std::string& text, const Options& options) {
  Schedule schedule = read_compute_csv(text, options.file);
  if (options.placement && parse_placement(*options.placement) != schedule.layout.placement()) {
    throw InputError(fmt::format("{} is placed as {}, not as {}", options.file, to_string(schedule.layout.placement()),
                                 *options.placement));
  }
  const Layout& layout = schedule.layout;
  Answer answer{
      .subject = fmt::format("schedule: {} ranks x {} virtual stages ({} placement), {} microbatches, {} actions; "
                             "messages of an ordinary residual, one tensor per hop",
                             layout.pp(), layout.vp(), to_string(layout.placement()), layout.microbatches(),
                             schedule.num_actions()),
      .forward_only = schedule.forward_only,
      .faults = {},
      .models = {},
      .cycle = {}};
  const ScheduleCheck check = check_schedule(schedule);
  for (const ScheduleFault& fault : check.faults) {
    answer.faults.push_back({fault.rank.value, fault.column, fault.token, fault.why});
  }
  for (const ScheduleFault& step : check.cycle) {
    answer.cycle.push_back({step.rank, step.token});
  }
  if (answer.ok()) {
    // A compute-only file says nothing of messages: judge the ones of an ordinary residual, one tensor per hop.
    const int chunks = layout.num_chunks();
    const DepthMap depth(chunks, chunks, DepthMap::even_cuts(chunks, chunks, chunks), Residual::standard);
    try_models(lower(schedule, depth, Policy::standard), options, answer);
  }
  return answer;
}

void print_json(const Answer& answer) {
  Json errors = Json::array();
  for (const Fault& fault : answer.faults) {
    errors.push_back({{"row", fault.row}, {"column", fault.column}, {"token", fault.token}, {"why", fault.why}});
  }
  Json deadlock;
  if (!answer.cycle.empty()) {
    Json cycle = Json::array();
    for (const BlockedStep& step : answer.cycle) {
      cycle.push_back({{"rank", step.rank.value}, {"action", step.action}});
    }
    deadlock = {{"cycle", std::move(cycle)}};
  }
  Json models = Json::object();
  for (const DeadlockReport& report : answer.models) {
    models[std::string(to_string(report.model))] = !report.deadlock;
  }
  fmt::print("{}\n", Json{{"ok", answer.ok()},
                          {"forward_only", answer.forward_only},
                          {"errors", errors},
                          {"deadlock", deadlock},
                          {"channels_safe", models}}
                         .dump());
}

void print_text(const Answer& answer) {
  fmt::print("{}{}\n", answer.subject, answer.forward_only ? ", forward only" : "");
  for (const Fault& fault : answer.faults) {
    fmt::print("row {} (rank {}), column {} '{}': {}\n", fault.row + 1, fault.row, fault.column + 1, fault.token,
               fault.why);
  }
  for (const DeadlockReport& report : answer.models) {
    fmt::print("  {:<14} {}\n", to_string(report.model), report.deadlock ? "DEADLOCK" : "cannot deadlock");
  }
  if (!answer.cycle.empty()) {
    fmt::print("cycle, each waits for the next:");
    for (const BlockedStep& step : answer.cycle) {
      fmt::print(" rank {} {} ->", step.rank.value, step.action);
    }
    fmt::print(" rank {} {}\n", answer.cycle.front().rank.value, answer.cycle.front().action);
  }
  fmt::print("{}\n", answer.ok() ? "ok" : "not ok");
}

}  // namespace

int run_check(const Options& options) {
  resolve_models(options);  // refuse a wrong flag before reading a large file
  const std::string text = read_input(options.file, max_file_bytes);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) {
    throw InputError(fmt::format("{} is empty: a torch compute CSV or a program JSON is needed", options.file));
  }
  const Answer answer = text[first] == '{' ? check_program_json(text, options) : check_csv(text, options);
  if (options.json) {
    print_json(answer);
  } else {
    print_text(answer);
  }
  if (!answer.ok()) {
    fmt::print(stderr, "config: {} is {}\n", options.file,
               answer.faults.empty() ? "free of faults but can deadlock" : "not a legal schedule or program");
    return exit_no;
  }
  return exit_fine;
}

}  // namespace plumb::cli
