// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/check.hpp"

#include <cstdio>

#include <fmt/format.h>

#include "check_answer.hpp"
#include "commands.hpp"
#include "exit.hpp"
#include "output.hpp"
#include "plumb/cache/comms_check.hpp"
#include "plumb/cache/deadlock.hpp"
#include "plumb/cache/encode.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/comms_csv.hpp"
#include "plumb/schedule/compute_csv.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb::cli {

namespace {

constexpr std::size_t max_file_bytes = std::size_t{512} << 20;

std::vector<ChannelModel> resolve_models(const Options& options) {
  if (options.shared_fifo) {
    if (options.channels && *options.channels != "fifo-per-pair") {
      throw InputError("--shared-fifo goes with --channels fifo-per-pair");
    }
    return {ChannelModel::shared_fifo};
  }
  return options.channels ? std::vector{parse_channel_model(*options.channels)} : all_channel_models();
}

std::vector<ChannelVerdict> try_models(const Program& program, const Options& options) {
  std::vector<ChannelVerdict> channels;
  for (const ChannelModel model : resolve_models(options)) {
    channels.push_back({check_deadlock(program, model), {}});
  }
  return channels;
}

std::string size_of(const Layout& layout) {
  return fmt::format("{} ranks x {} virtual stages ({} placement), {} microbatches", layout.pp(), layout.vp(),
                     to_string(layout.placement()), layout.microbatches());
}

void require_placement(const Options& options, const Layout& layout) {
  if (options.placement && parse_placement(*options.placement) != layout.placement()) {
    throw InputError(
        fmt::format("{} is placed as {}, not as {}", options.file, to_string(layout.placement()), *options.placement));
  }
}

CsvDialect dialect_of(const Options& options) { return options.legacy ? CsvDialect::legacy : CsvDialect::current; }

Answer check_program_json(const std::string& text, const Options& options) {
  if (options.placement || options.legacy) {
    throw InputError(
        fmt::format("{} goes with a CSV, not with a program", options.legacy ? "--legacy" : "--placement"));
  }
  const Program program = program_from_json(text);
  Answer answer;
  answer.subject = fmt::format("program {}: {} ranks, {} messages", to_string(digest(program)), program.layout.pp(),
                               program.messages.size());
  answer.forward_only = program.forward_only;
  for (const ProgramFault& fault : verify_program(program)) {
    answer.faults.push_back({fault.rank, static_cast<std::size_t>(fault.position), fault.token, fault.why});
  }
  try {
    add_channels(answer, try_models(program, options));
  } catch (const InputError&) {  // indices out of range: nothing can be run, and the faults say so already
    if (answer.faults.empty()) {
      throw;
    }
  }
  return answer;
}

// A position among the actions becomes the cell of the file; what is missing stands behind the last one.
void place_in_file(const CsvColumns& columns, std::vector<ScheduleFault>& faults) {
  for (ScheduleFault& fault : faults) {
    if (fault.rank.index() >= columns.size()) {
      continue;
    }
    const std::vector<std::uint32_t>& row = columns[fault.rank.index()];
    fault.column = fault.column < row.size() ? row[fault.column] : row.empty() ? 0 : row.back() + 1;
  }
}

Answer check_compute_csv(const std::string& text, const Options& options) {
  CsvColumns columns;
  const Schedule schedule = read_compute_csv(text, options.file, std::nullopt, dialect_of(options), &columns);
  require_placement(options, schedule.layout);
  const Layout& layout = schedule.layout;
  Answer answer;
  answer.subject = fmt::format("schedule: {}, {} actions; messages of an ordinary residual, one tensor per hop",
                               size_of(layout), schedule.num_actions());
  answer.forward_only = schedule.forward_only;
  ScheduleCheck check = check_schedule(schedule);
  answer.faults = std::move(check.faults);
  place_in_file(columns, answer.faults);
  for (const ScheduleFault& step : check.cycle) {
    answer.cycle.push_back({step.rank, step.token});
  }
  if (answer.ok()) {
    // A compute-only file says nothing of messages: judge the ones of an ordinary residual, one tensor per hop.
    const int chunks = layout.num_chunks();
    const DepthMap depth(chunks, chunks, DepthMap::even_cuts(chunks, chunks, chunks), Residual::standard);
    add_channels(answer, try_models(lower(schedule, depth, Policy::standard), options));
  }
  return answer;
}

Answer check_comms_csv(const std::string& text, const Options& options) {
  const CommsSchedule schedule = read_comms_csv(text, options.file, std::nullopt, dialect_of(options));
  require_placement(options, schedule.layout);
  std::size_t num_computations = 0;
  std::size_t num_items = 0;
  for (const std::vector<CommsItem>& items : schedule.ranks) {
    num_items += items.size();
    for (const CommsItem& item : items) {
      num_computations += std::holds_alternative<Action>(item) ? 1U : 0U;
    }
  }
  Answer answer;
  answer.subject = fmt::format("schedule with communication: {}, {} actions, {} communications",
                               size_of(schedule.layout), num_computations, num_items - num_computations);
  answer.forward_only = schedule.forward_only;
  CommsCheck check = check_comms(schedule, resolve_models(options));
  answer.faults = std::move(check.faults);
  for (const ScheduleFault& step : check.cycle) {
    answer.cycle.push_back({step.rank, step.token});
  }
  for (const ChunkId before : check.empty_hops) {
    answer.notes.push_back(
        fmt::format("nothing crosses from chunk {} to chunk {}: right only where an empty chunk has nothing to pass on",
                    before.value, before.value + 1));
  }
  add_channels(answer, std::move(check.channels));
  return answer;
}

}  // namespace

int run_check(const Options& options) {
  resolve_models(options);  // refuse a wrong flag before reading a large file
  const std::string text = read_input(options.file, max_file_bytes);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) {
    throw InputError(fmt::format("{} is empty: a torch schedule CSV or a program JSON is needed", options.file));
  }
  const Answer answer = text[first] == '{'           ? check_program_json(text, options)
                        : spells_communication(text) ? check_comms_csv(text, options)
                                                     : check_compute_csv(text, options);
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
