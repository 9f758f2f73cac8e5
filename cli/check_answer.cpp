// SPDX-License-Identifier: Apache-2.0
#include "check_answer.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace plumb::cli {

namespace {

using Json = nlohmann::ordered_json;

bool same(const DeadlockReport& a, const DeadlockReport& b) {
  return a.unmatched == b.unmatched && std::equal(a.cycle.begin(), a.cycle.end(), b.cycle.begin(), b.cycle.end(),
                                                  [](const BlockedStep& x, const BlockedStep& y) {
                                                    return x.rank == y.rank && x.action == y.action;
                                                  });
}

// The deadlocks of all models, those that are alike together.
struct Group {
  std::vector<std::string_view> channels;
  const DeadlockReport* report = nullptr;
};

std::vector<Group> groups_of(const std::vector<ChannelVerdict>& verdicts) {
  std::vector<Group> groups;
  for (const ChannelVerdict& verdict : verdicts) {
    if (!verdict.deadlock.deadlock) continue;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& known) { return same(*known.report, verdict.deadlock); });
    if (group == groups.end()) group = groups.insert(group, Group{{}, &verdict.deadlock});
    group->channels.push_back(to_string(verdict.deadlock.model));
  }
  return groups;
}

Json steps_json(const std::vector<BlockedStep>& cycle) {
  Json steps = Json::array();
  for (const BlockedStep& step : cycle) {
    steps.push_back({{"rank", step.rank.value}, {"action", step.action}});
  }
  return steps;
}

std::string cycle_text(const std::vector<BlockedStep>& cycle) {
  std::string text = "cycle, each waits for the next:";
  for (const BlockedStep& step : cycle) {
    text += fmt::format(" rank {} {} ->", step.rank.value, step.action);
  }
  return text + fmt::format(" rank {} {}", cycle.front().rank.value, cycle.front().action);
}

}  // namespace

void add_channels(Answer& answer, std::vector<ChannelVerdict> channels) {
  answer.channels = std::move(channels);
  for (const ChannelVerdict& verdict : answer.channels) {
    if (verdict.deadlock.deadlock && !answer.deadlocks && answer.cycle.empty()) {
      answer.cycle = verdict.deadlock.cycle;
      answer.deadlocks = verdict.deadlock.model;
      answer.unmatched = verdict.deadlock.unmatched;
    }
    if (!verdict.mismatch) {
      continue;
    }
    const ScheduleFault& fault = *verdict.mismatch;
    const bool known = std::any_of(answer.faults.begin(), answer.faults.end(), [&](const ScheduleFault& other) {
      return other.rank == fault.rank && other.column == fault.column && other.why.ends_with(fault.why);
    });
    if (!known) {
      answer.faults.push_back({fault.rank, fault.column, fault.token,
                               fmt::format("with channels {} {}", to_string(verdict.deadlock.model), fault.why)});
    }
  }
}

void print_json(const Answer& answer) {
  Json errors = Json::array();
  for (const ScheduleFault& fault : answer.faults) {
    errors.push_back({{"row", fault.rank.value}, {"column", fault.column}, {"token", fault.token}, {"why", fault.why}});
  }
  Json deadlock;
  if (!answer.cycle.empty()) {
    deadlock = {{"cycle", steps_json(answer.cycle)}};
    if (answer.deadlocks) {
      deadlock["channels"] = std::string(to_string(*answer.deadlocks));
      deadlock["unmatched"] = answer.unmatched;
      for (const Group& group : groups_of(answer.channels)) {
        deadlock["all"].push_back({{"channels", group.channels},
                                   {"unmatched", group.report->unmatched},
                                   {"cycle", steps_json(group.report->cycle)}});
      }
    }
  }
  Json models = Json::object();
  for (const ChannelVerdict& verdict : answer.channels) {
    models[std::string(to_string(verdict.deadlock.model))] = verdict.safe();
  }
  fmt::print("{}\n", Json{{"ok", answer.ok()},
                          {"forward_only", answer.forward_only},
                          {"errors", errors},
                          {"deadlock", deadlock},
                          {"channels_safe", models},
                          {"notes", answer.notes}}
                         .dump());
}

void print_text(const Answer& answer) {
  fmt::print("{}{}\n", answer.subject, answer.forward_only ? ", forward only" : "");
  for (const ScheduleFault& fault : answer.faults) {
    if (fault.token.empty()) {
      fmt::print("row {} (rank {}): {}\n", fault.rank.value + 1, fault.rank.value, fault.why);
    } else {
      fmt::print("row {} (rank {}), column {} '{}': {}\n", fault.rank.value + 1, fault.rank.value, fault.column + 1,
                 fault.token, fault.why);
    }
  }
  for (const std::string& note : answer.notes) {
    fmt::print("note: {}\n", note);
  }
  for (const ChannelVerdict& verdict : answer.channels) {
    const char* said = verdict.deadlock.deadlock ? "DEADLOCK" : verdict.mismatch ? "WRONG DATA" : "cannot deadlock";
    fmt::print("  {:<14} {}\n", to_string(verdict.deadlock.model), said);
  }
  if (!answer.cycle.empty() && !answer.deadlocks) fmt::print("{}\n", cycle_text(answer.cycle));
  for (const Group& group : groups_of(answer.channels)) {
    const BlockedStep& first = group.report->cycle.front();
    fmt::print("{}: {}\n", fmt::join(group.channels, ", "),
               group.report->unmatched
                   ? fmt::format("unmatched, its partner never comes: rank {} {}", first.rank.value, first.action)
                   : cycle_text(group.report->cycle));
  }
  fmt::print("{}\n", answer.ok() ? "ok" : "not ok");
}

}  // namespace plumb::cli
