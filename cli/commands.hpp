// SPDX-License-Identifier: Apache-2.0
//
// commands.hpp (private): one function per subcommand, each in a file of its own. They return the exit code; bad input
// throws.
#pragma once

#include "options.hpp"
#include "plumb/cache/program.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb::cli {

int run_volume(const Options& options);
int run_plan(const Options& options);
int run_check(const Options& options);
int run_sim(const Options& options);

int run_size(const Options& options);

// --compare of plan and sim: one table over several schedules.
int run_compare_schedules(const Options& options);

// --against of sim: a measured run beside `predicted`.
int run_against(const Options& options, const Program& program, const Timeline& predicted);

// Whether the header of this log names the program. False too for what is no log.
bool is_log_of(const std::string& file, const Program& program);

// Replaces this process by plumb-<subcommand> beside it (else on PATH) with the same arguments. Throws
// EnvironmentError.
[[noreturn]] void exec_sibling(const Options& options);

}  // namespace plumb::cli
