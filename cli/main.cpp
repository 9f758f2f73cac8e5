// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include <fmt/format.h>

#include "commands.hpp"
#include "exit.hpp"
#include "output.hpp"
#include "plumb/schedule/error.hpp"
#include "resolve.hpp"
#include "schedule_file.hpp"

using namespace plumb::cli;

namespace {

int run(Options& options) {
  apply_schedule_file(options);
  apply_layout(options);
  if (options.subcommand == "volume") return run_volume(options);
  if (options.subcommand == "plan") return run_plan(options);
  if (options.subcommand == "check") return run_check(options);
  if (options.subcommand == "sim") return run_sim(options);
  if (options.subcommand == "size") return run_size(options);
  exec_sibling(options);
}

int failed(std::string_view reason, std::string_view why, int code) {
  fmt::print(stderr, "{}: {}\n", reason, plumb::one_line(why));
  return code;
}

// stdout is part of the answer: a full disk or a closed pipe must not look like success.
int flushed(int code) {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fmt::print(stderr, "config: cannot write to standard output\n");
    return exit_environment;
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  ignore_file_size_signal();
  try {
    Options options;
    return flushed(parse(argc, argv, options) == Parsed::done ? exit_fine : run(options));
  } catch (const UsageError& error) {
    return failed("usage", error.what(), exit_bad_input);
  } catch (const plumb::InputError& error) {
    return failed("config", error.what(), exit_bad_input);
  } catch (const OutOfMemory& error) {
    return failed("memory", error.what(), exit_environment);
  } catch (const std::bad_alloc&) {
    return failed("memory", "not enough memory for a problem of this size", exit_environment);
  } catch (const std::exception& error) {
    return failed("config", error.what(), exit_environment);
  }
}
