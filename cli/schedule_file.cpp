// SPDX-License-Identifier: Apache-2.0
#include "schedule_file.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "output.hpp"
#include "plumb/cache/comms_check.hpp"
#include "plumb/cache/comms_program.hpp"
#include "plumb/schedule/check.hpp"
#include "plumb/schedule/compute_csv.hpp"
#include "plumb/schedule/error.hpp"
#include "resolve.hpp"

namespace plumb::cli {
namespace {

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw InputError(fmt::format("--schedule {}: {}; 'plumb check {}' tells all", file, why, file));
}

void require_legal_order(const std::string& file, const ScheduleCheck& check) {
  if (check.ok()) return;
  if (check.faults.empty()) {
    refuse(file, fmt::format("its order cannot run: rank {} {} waits for itself", check.cycle.front().rank.value,
                             check.cycle.front().token));
  }
  const ScheduleFault& fault = check.faults.front();
  refuse(file,
         fmt::format("rank {}{}{}: {}", fault.rank.value, fault.token.empty() ? "" : " ", fault.token, fault.why));
}

ScheduleFile read(const std::string& file) {
  const std::string text = read_input(file, max_schedule_bytes);
  if (!spells_communication(text)) {
    ScheduleFile read{read_compute_csv(text, file, std::nullopt), std::nullopt};
    require_legal_order(file, check_schedule(read.schedule));
    return read;
  }
  CommsSchedule comms = read_comms_csv(text, file, std::nullopt);
  if (!has_messages(comms)) {
    ScheduleFile read{computations_of(comms), std::nullopt};
    require_legal_order(file, check_schedule(read.schedule));
    return read;
  }
  const CommsCheck check = check_comms(comms, std::array{ChannelModel::buffered});
  require_legal_order(file, {check.faults, check.cycle});
  if (check.channels.front().deadlock.deadlock) refuse(file, "its messages deadlock under every channel model");
  return {computations_of(comms), std::move(comms)};
}

void require_same(const std::string& file, std::string_view flag, int given, int here, std::string_view what) {
  if (given != here) {
    throw InputError(fmt::format("--schedule {} has {} {}, not the {} of {}", file, here, what, given, flag));
  }
}

}  // namespace

bool has_messages(const CommsSchedule& schedule) {
  const auto moves = [](const CommsItem& item) {
    const CommAction* const action = std::get_if<CommAction>(&item);
    return action != nullptr && moves_data(action->op);
  };
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [&](const std::vector<CommsItem>& items) {
    return std::any_of(items.begin(), items.end(), moves);
  });
}

void apply_schedule_file(Options& options) {
  if (!options.schedule || !options.schedule->ends_with(".csv")) return;
  const std::string& file = *options.schedule;
  if (options.subcommand != "plan" && options.subcommand != "sim") {
    throw InputError(fmt::format("--schedule {}: a schedule from a file goes with plumb plan and plumb sim", file));
  }
  if (options.compare) throw InputError("--schedule and --compare exclude each other");
  if (options.group || options.group_rule) {
    throw InputError(fmt::format("--group{} does not go with --schedule {}, which has its order",
                                 options.group ? "" : "-rule", file));
  }
  auto read_file = std::make_shared<ScheduleFile>(read(file));
  const Layout& layout = read_file->schedule.layout;
  if (options.pp != 1) require_same(file, "--pp", options.pp, layout.pp(), "ranks");
  if (options.vp != 1) require_same(file, "--vp", options.vp, layout.vp(), "virtual stages");
  if (options.microbatches) {
    require_same(file, "--microbatches", *options.microbatches, layout.microbatches(), "microbatches");
  }
  if (options.placement && parse_placement(*options.placement) != layout.placement()) {
    throw InputError(fmt::format("--schedule {} places its chunks as a {}, not a {}", file,
                                 to_string(layout.placement()), *options.placement));
  }
  options.pp = layout.pp();
  options.vp = layout.vp();
  options.microbatches = layout.microbatches();
  options.placement = std::string(to_string(layout.placement()));
  options.schedule_file = std::move(read_file);
}

Program lower_as_given(const Options& options, const Schedule& schedule, const DepthMap& depth,
                       const LowerOptions& lowering) {
  if (!options.schedule_file || !options.schedule_file->comms) {
    return lower(schedule, depth, resolve_policy(options, depth), lowering);
  }
  if (depth.residual() != Residual::standard) {
    throw InputError(
        fmt::format("--schedule {} has messages of its own, one tensor each, and none for blocks: give --residual "
                    "standard, or a file of computations alone",
                    *options.schedule));
  }
  return comms_program(*options.schedule_file->comms);
}

}  // namespace plumb::cli
