// SPDX-License-Identifier: Apache-2.0
#include "schedule_bench.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <stdexcept>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.hpp"
#include "plumb/cache/deadlock.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/schedule/check.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/named.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/simulate.hpp"

namespace plumb::bench {
namespace {

double seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
double processor_seconds() { return seconds(CLOCK_PROCESS_CPUTIME_ID); }

// The seconds of a call; its value goes to `result`.
template <class Work>
double timed(Work&& work) {
  const double begin = processor_seconds();
  work();
  return processor_seconds() - begin;
}

double peak_gib_so_far() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1024.0 * 1024.0);
}

void require_sound(bool sound, const char* what) {
  if (!sound) throw std::runtime_error(fmt::format("{} found a fault", what));
}

// F = I = W = 1 ms, 50 us a unit, both ways, no latency: what the planner assumes too.
CostModel costs() {
  const SimTime ms = from_us(1000, "action");
  const UnitBytes bytes = unit_bytes(4096, 7168, 2, GradientWire::storage);
  return CostModel(action_times(ms, ms, ms), link_from_unit_time(SimTime(0), from_us(50, "unit"), bytes), bytes);
}

ScheduleCost measure_here(const ScheduleCase& wanted) {
  const ScheduleKind kind = parse_schedule_kind(wanted.schedule);
  const bool standard = wanted.policy == "standard";
  const Policy policy = standard ? Policy::standard : parse_policy(wanted.policy);
  const Layout layout(wanted.pp, wanted.vp, wanted.microbatches, placement_of(kind));
  const DepthMap depth(wanted.sublayers, wanted.block,
                       DepthMap::even_cuts(wanted.sublayers, wanted.sublayers, layout.num_chunks()),
                       standard ? Residual::standard : Residual::attnres_block);
  ScheduleCost cost;
  Schedule schedule{"", layout, {}, false};
  const double begin = seconds(CLOCK_MONOTONIC);
  cost.generate_s = timed([&] { schedule = make_schedule({.kind = kind}, layout); });
  cost.check_s = timed([&] { require_sound(check_schedule(schedule).ok(), "check_schedule"); });
  Program program{layout, depth, {}, {}, false, 1, {}, {}};
  cost.lower_s = timed([&] { program = lower(schedule, depth, policy); });
  schedule.ranks = {};
  cost.verify_s = timed([&] { require_sound(verify_program(program).empty(), "verify_program"); });
  cost.deadlock_s =
      timed([&] { require_sound(!check_deadlock(program, ChannelModel::rendezvous).deadlock, "check_deadlock"); });
  cost.wall_s = seconds(CLOCK_MONOTONIC) - begin;
  cost.plan_peak_gib = peak_gib_so_far();
  const CostModel model = costs();
  cost.simulate_s = timed([&] { require_sound(simulate(program, model).step > SimTime(0), "simulate"); });
  cost.num_messages = static_cast<std::int64_t>(program.messages.size());
  for (const RankProgram& rank : program.ranks) {
    cost.num_actions += static_cast<std::int64_t>(rank.compute.size());
    cost.num_steps += static_cast<std::int64_t>(rank.order.size());
  }
  return cost;
}

struct Answer {
  bool good = false;
  ScheduleCost cost;
  std::array<char, 512> why{};
};

[[noreturn]] void answer_and_exit(const ScheduleCase& wanted, int pipe_end) {
  Answer answer;
  try {
    answer.cost = measure_here(wanted);
    answer.good = true;
  } catch (const std::exception& error) {
    std::strncpy(answer.why.data(), error.what(), answer.why.size() - 1);
  }
  const bool written = write(pipe_end, &answer, sizeof answer) == static_cast<ssize_t>(sizeof answer);
  _exit(written ? 0 : 1);
}

constexpr const char* schedule_command = "plumb bench schedule";
constexpr const char* schedule_usage =
    "usage: plumb bench schedule [--curve] [--schedule NAME] [--policy NAME] [--microbatches M] [--json]\n\n"
    "  Plans, proves and simulates P=64 V=8 M=1024, 1024 sublayers in blocks of 64, each row in its own process.\n"
    "  --schedule, --policy   only these rows; policies: standard, naive, relay, cached, direct\n"
    "  --microbatches M       instead of 1024\n"
    "  --curve                the same with M from 64 to 16384, for standard: up to 16 million actions\n"
    "  --json                 one JSON object on standard output\n";

struct Request {
  std::vector<ScheduleCase> cases;
  bool json = false;
};

std::vector<ScheduleCase> default_cases() {
  std::vector<ScheduleCase> cases;
  for (const char* schedule : {"interleaved", "looped-bfs", "zb-h1"}) {
    for (const char* policy : {"standard", "relay", "cached", "direct"}) {
      cases.push_back({.schedule = schedule, .policy = policy});
    }
  }
  return cases;
}

std::vector<ScheduleCase> curve() {
  std::vector<ScheduleCase> cases;
  for (int microbatches = 64; microbatches <= 16384; microbatches *= 4) {
    cases.push_back({.policy = "standard", .microbatches = microbatches});
  }
  return cases;
}

void print_head() {
  fmt::print(
      "{:>12} {:>9} {:>6} {:>9} {:>9} {:>9} | {:>8} {:>6} {:>6} {:>6} {:>8} {:>6} {:>6} {:>8} | {:>8} {:>8} {:>9}\n",
      "schedule", "policy", "M", "actions", "messages", "steps", "generate", "check", "lower", "verify", "deadlock",
      "in all", "wall", "simulate", "plan GiB", "sim GiB", "ns/action");
}

void print_row(const ScheduleCase& wanted, const ScheduleCost& cost) {
  const double all = cost.plan_s();
  fmt::print(
      "{:>12} {:>9} {:>6} {:>9} {:>9} {:>9} | {:>8.2f} {:>6.2f} {:>6.2f} {:>6.2f} {:>8.2f} {:>6.2f} {:>6.2f} {:>8.2f}",
      wanted.schedule, wanted.policy, wanted.microbatches, cost.num_actions, cost.num_messages, cost.num_steps,
      cost.generate_s, cost.check_s, cost.lower_s, cost.verify_s, cost.deadlock_s, all, cost.wall_s, cost.simulate_s);
  fmt::print(" | {:>8.2f} {:>8.2f} {:>9.0f}\n", cost.plan_peak_gib, cost.peak_gib,
             1e9 * all / static_cast<double>(cost.num_actions));
  std::fflush(stdout);
}

// Names of schedules and policies are plain words: nothing to escape.
std::string json_row(const ScheduleCase& wanted, const ScheduleCost& cost) {
  return fmt::format(
      R"({{"schedule":"{}","policy":"{}","pp":{},"vp":{},"microbatches":{},"sublayers":{},"block":{},)"
      R"("actions":{},"messages":{},"steps":{},"generate_s":{:.4f},"check_s":{:.4f},"lower_s":{:.4f},)"
      R"("verify_s":{:.4f},"deadlock_s":{:.4f},"simulate_s":{:.4f},"plan_peak_gib":{:.4f},"peak_gib":{:.4f}}})",
      wanted.schedule, wanted.policy, wanted.pp, wanted.vp, wanted.microbatches, wanted.sublayers, wanted.block,
      cost.num_actions, cost.num_messages, cost.num_steps, cost.generate_s, cost.check_s, cost.lower_s, cost.verify_s,
      cost.deadlock_s, cost.simulate_s, cost.plan_peak_gib, cost.peak_gib);
}

}  // namespace

ScheduleCost measure_schedule(const ScheduleCase& wanted) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe to a process of its own");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no process of its own");
  if (child == 0) {
    close(ends[0]);
    answer_and_exit(wanted, ends[1]);
  }
  close(ends[1]);
  Answer answer;
  const bool read_all = read(ends[0], &answer, sizeof answer) == static_cast<ssize_t>(sizeof answer);
  close(ends[0]);
  rusage usage{};
  int status = 0;
  wait4(child, &status, 0, &usage);
  if (!read_all) {
    throw std::runtime_error(fmt::format("{} {} M={}: ended without an answer (out of memory?)", wanted.schedule,
                                         wanted.policy, wanted.microbatches));
  }
  if (!answer.good) throw std::runtime_error(answer.why.data());
  answer.cost.peak_gib = static_cast<double>(usage.ru_maxrss) / (1024.0 * 1024.0);
  return answer.cost;
}

int run_schedule_bench(const std::vector<std::string>& arguments) try {
  std::vector<ScheduleCase> cases = default_cases();
  std::string schedule;
  std::string policy;
  int microbatches = 0;
  bool json = false;
  const auto take = [&](Flag& flag) {
    if (flag.is("--json")) {
      json = true;
    } else if (flag.is("--curve")) {
      cases = curve();
    } else if (flag.is("--schedule")) {
      schedule = to_string(parse_schedule_kind(flag.value()));
    } else if (flag.is("--policy")) {
      policy = flag.value();
      if (policy != "standard") parse_policy(policy);
    } else if (flag.is("--microbatches")) {
      microbatches = static_cast<int>(flag.number(9'999'999));
    } else {
      return false;
    }
    return true;
  };
  if (const auto ending = read_flags(arguments, schedule_command, schedule_usage, take)) return *ending;
  if (!schedule.empty() || !policy.empty()) {
    std::erase_if(cases, [&](const ScheduleCase& row) {
      return (!schedule.empty() && row.schedule != schedule) || (!policy.empty() && row.policy != policy);
    });
    if (cases.empty()) {
      cases.push_back({});
      if (!schedule.empty()) cases[0].schedule = schedule;
      if (!policy.empty()) cases[0].policy = policy;
    }
  }
  std::vector<std::string> rows;
  if (!json) print_head();
  for (ScheduleCase& row : cases) {
    if (microbatches > 0) row.microbatches = microbatches;
    const ScheduleCost cost = measure_schedule(row);
    if (json) {
      rows.push_back(json_row(row, cost));
    } else {
      print_row(row, cost);
    }
  }
  if (json) fmt::print("{{\"results\":[{}]}}\n", fmt::join(rows, ","));
  return 0;
} catch (const InputError& error) {
  return refuse(schedule_command, error.what());
}

}  // namespace plumb::bench
