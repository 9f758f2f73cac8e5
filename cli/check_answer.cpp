// SPDX-License-Identifier: Apache-2.0
#include "check_answer.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace plumb::cli {

namespace {

using Json = nlohmann::ordered_json;

}  // namespace

void add_channels(Answer& answer, std::vector<ChannelVerdict> channels) {
  answer.channels = std::move(channels);
  for (const ChannelVerdict& verdict : answer.channels) {
    if (verdict.deadlock.deadlock && !answer.deadlocks && answer.cycle.empty()) {
      answer.cycle = verdict.deadlock.cycle;
      answer.deadlocks = verdict.deadlock.model;
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
    Json cycle = Json::array();
    for (const BlockedStep& step : answer.cycle) {
      cycle.push_back({{"rank", step.rank.value}, {"action", step.action}});
    }
    deadlock = {{"cycle", std::move(cycle)}};
    if (answer.deadlocks) {
      deadlock["channels"] = std::string(to_string(*answer.deadlocks));
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
  if (!answer.cycle.empty()) {
    fmt::print("cycle, each waits for the next:");
    for (const BlockedStep& step : answer.cycle) {
      fmt::print(" rank {} {} ->", step.rank.value, step.action);
    }
    fmt::print(" rank {} {}\n", answer.cycle.front().rank.value, answer.cycle.front().action);
  }
  fmt::print("{}\n", answer.ok() ? "ok" : "not ok");
}

}  // namespace plumb::cli
