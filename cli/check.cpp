// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/check.hpp"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include <fmt/format.h>

#include "check_answer.hpp"
#include "commands.hpp"
#include "exit.hpp"
#include "memory.hpp"
#include "output.hpp"
#include "plumb/cache/comms_check.hpp"
#include "plumb/cache/deadlock.hpp"
#include "plumb/cache/encode.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/comms_csv.hpp"
#include "plumb/schedule/compute_csv.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/named.hpp"
#include "schedule_file.hpp"

namespace plumb::cli {

namespace {

std::vector<ChannelModel> resolve_models(const Options& options) {
  if (options.shared_fifo) {
    if (options.channels && *options.channels != "fifo-per-pair") {
      throw InputError("--shared-fifo goes with --channels fifo-per-pair");
    }
    return {ChannelModel::shared_fifo};
  }
  if (!options.channels) return all_channel_models();
  std::vector<ChannelModel> models;
  std::string_view rest = *options.channels;
  for (bool more = true; more;) {
    const std::string_view name = rest.substr(0, rest.find(','));
    more = name.size() < rest.size();
    rest.remove_prefix(name.size() + (more ? 1 : 0));
    try {
      models.push_back(parse_channel_model(name));
    } catch (const InputError& error) {
      throw InputError(fmt::format("--channels '{}': {}", name, error.what()));
    }
    if (std::count(models.begin(), models.end(), models.back()) > 1) {
      throw InputError(fmt::format("--channels '{}' names {} twice", *options.channels, name));
    }
  }
  return models;
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

// A placement asked for is what the rows are judged by.
void place_as_asked(const Options& options, Layout& layout) {
  if (!options.placement) return;
  layout = Layout(layout.pp(), layout.vp(), layout.microbatches(), parse_placement(*options.placement));
}

CsvDialect dialect_of(const Options& options) { return options.legacy ? CsvDialect::legacy : CsvDialect::current; }

bool is_known_schedule(const std::string& name) {
  const auto kinds = all_schedule_kinds();
  return name == "auto" || name.ends_with(".csv") ||
         std::any_of(kinds.begin(), kinds.end(), [&](ScheduleKind kind) { return to_string(kind) == name; });
}

Answer check_program_json(const std::string& text, const Options& options) {
  if (options.placement || options.legacy) {
    throw InputError(
        fmt::format("{} goes with a CSV, not with a program", options.legacy ? "--legacy" : "--placement"));
  }
  // Measured: a document and its program take about ten times their text.
  require_memory(10.0 * static_cast<double>(text.size()), "reading " + options.file);
  const Program program = program_from_json(text);
  Answer answer;
  answer.subject = fmt::format("program {}: {} ranks, {} messages", to_string(digest(program)), program.layout.pp(),
                               program.messages.size());
  answer.forward_only = program.forward_only;
  if (!is_known_schedule(program.schedule_name)) {
    answer.notes.push_back(
        fmt::format("its schedule is called '{}', which is no name known here", one_line(program.schedule_name)));
  }
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

Answer check_computations(Schedule schedule, const CsvColumns& columns, const Options& options) {
  place_as_asked(options, schedule.layout);
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
    require_memory(bytes_needed(Product::simulation, layout, depth, Policy::standard, false),
                   "judging the messages of " + size_text(layout));
    add_channels(answer, try_models(lower(schedule, depth, Policy::standard), options));
  }
  return answer;
}

Answer check_compute_csv(const std::string& text, const Options& options) {
  CsvColumns columns;
  Schedule schedule =
      read_compute_csv(text, options.file, std::nullopt, dialect_of(options), &columns, CsvFit::nearest);
  return check_computations(std::move(schedule), columns, options);
}

// torch writes GPipe and 1F1B so: computations, and a REDUCE_GRAD at the end.
Answer check_without_messages(const CommsSchedule& comms, const Options& options) {
  CsvColumns columns;
  std::size_t num_others = 0;
  for (const std::vector<CommsItem>& items : comms.ranks) {
    std::vector<std::uint32_t>& row = columns.emplace_back();
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (std::holds_alternative<Action>(items[i])) row.push_back(static_cast<std::uint32_t>(i));
    }
    num_others += items.size() - row.size();
  }
  Answer answer = check_computations(computations_of(comms), columns, options);
  answer.notes.push_back(fmt::format(
      "no SEND and no RECV: read as computations alone, {} UNSHARD, RESHARD and REDUCE_GRAD left aside", num_others));
  return answer;
}

Answer check_comms_csv(const std::string& text, const Options& options) {
  CommsSchedule schedule = read_comms_csv(text, options.file, std::nullopt, dialect_of(options), CsvFit::nearest);
  if (!has_messages(schedule)) return check_without_messages(schedule, options);
  place_as_asked(options, schedule.layout);
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

// As the file does.
void spell(Answer& answer, CsvDialect dialect) {
  for (ScheduleFault& fault : answer.faults)
    fault.token = respelled(fault.token, dialect);
  for (BlockedStep& step : answer.cycle)
    step.action = respelled(step.action, dialect);
  for (ChannelVerdict& verdict : answer.channels) {
    for (BlockedStep& step : verdict.deadlock.cycle)
      step.action = respelled(step.action, dialect);
  }
}

}  // namespace

int run_check(const Options& options) {
  resolve_models(options);  // refuse a wrong flag before reading a large file
  const std::string text = read_input(options.file, max_schedule_bytes);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) {
    throw InputError(fmt::format("{} is empty: a torch schedule CSV or a program JSON is needed", options.file));
  }
  Answer answer = text[first] == '{'           ? check_program_json(text, options)
                  : spells_communication(text) ? check_comms_csv(text, options)
                                               : check_compute_csv(text, options);
  spell(answer, dialect_of(options));
  if (options.json) {
    print_json(answer);
  } else {
    print_text(answer);
  }
  if (!answer.ok()) {
    fmt::print(stderr, "config: {} is {}\n", one_line(options.file),
               answer.faults.empty() ? "free of faults but can deadlock" : "not a legal schedule or program");
    return exit_no;
  }
  return exit_fine;
}

}  // namespace plumb::cli
