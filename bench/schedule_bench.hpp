// SPDX-License-Identifier: Apache-2.0
//
// schedule_bench.hpp: what it costs to plan, prove and simulate a step that is never run.
//
// Each row is one schedule under one policy, measured in a process of its own, so that the peak of its memory is its
// own: generate, check the schedule, lower, verify the program, prove that it cannot deadlock under the strictest
// channel model, simulate. Seconds of processor time, of all threads; `wall_s` is what one waits for the plan, with as
// many threads as the machine has cores.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plumb::bench {

struct ScheduleCase {
  std::string schedule = "interleaved";
  std::string policy = "cached";  // or standard
  int pp = 64;
  int vp = 8;
  int microbatches = 1024;
  int sublayers = 1024;
  int block = 64;
};

struct ScheduleCost {
  std::int64_t num_actions = 0;  // computations of all ranks
  std::int64_t num_messages = 0;
  std::int64_t num_steps = 0;  // computations and communication steps of all ranks
  double generate_s = 0;
  double check_s = 0;
  double lower_s = 0;
  double verify_s = 0;
  double deadlock_s = 0;
  double wall_s = 0;  // from the first of these to the last
  double simulate_s = 0;
  double plan_peak_gib = 0;  // before the simulation
  double peak_gib = 0;

  double plan_s() const { return generate_s + check_s + lower_s + verify_s + deadlock_s; }
};

// Throws InputError for a case that cannot be, std::runtime_error when the other process ends without an answer.
ScheduleCost measure_schedule(const ScheduleCase& wanted);

// Everything after the word `schedule`; the exit status. Prints a row as soon as it is there, or one JSON object.
int run_schedule_bench(const std::vector<std::string>& arguments);

}  // namespace plumb::bench
