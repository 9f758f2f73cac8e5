// SPDX-License-Identifier: Apache-2.0
// plumb-rehearse: a rehearsal of a layout on this machine. Started by `plumb rehearse`, or by mpirun with one process
// per rank.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "exit.hpp"
#include "job.hpp"
#include "options.hpp"
#include "output.hpp"
#include "plumb/comm/transport_error.hpp"
#include "plumb/rehearsal/launch.hpp"
#include "plumb/runtime/event_log.hpp"
#include "plumb/runtime/rank_threads.hpp"
#include "plumb/runtime/run_error.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/trace.hpp"
#include "print.hpp"
#include "resolve.hpp"
#include "setup.hpp"

namespace {

using namespace plumb;
using namespace plumb::rehearsal;

struct Ending {
  int code = 0;
  std::string line;
};

Ending ending_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const cli::UsageError& error) {
    return {cli::exit_bad_input, fmt::format("usage: {}", error.what())};
  } catch (const InputError& error) {
    return {cli::exit_bad_input, fmt::format("config: {}", error.what())};
  } catch (const RunError& error) {
    return {cli::exit_environment, fmt::format("{}: {}", to_text(error.kind()), error.what())};
  } catch (const TransportError& error) {
    return {cli::exit_environment, fmt::format("{}: {}", to_text(error.fault().kind), error.what())};
  } catch (const std::bad_alloc&) {
    return {cli::exit_environment, "memory: not enough memory for a rehearsal of this size"};
  } catch (const std::exception& error) {
    return {cli::exit_environment, fmt::format("config: {}", error.what())};
  }
}

int say(const Ending& ending) {
  if (!ending.line.empty()) fmt::print(stderr, "{}\n", plumb::one_line(ending.line));
  return ending.code;
}

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One line that moves on a terminal, nothing elsewhere.
class Progress {
 public:
  explicit Progress(int num_steps) : num_steps_(num_steps), terminal_(isatty(STDERR_FILENO) != 0) {}
  ~Progress() {
    if (open_) fmt::print(stderr, "\n");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(int number, std::chrono::nanoseconds took) {
    if (!terminal_) return;
    open_ = true;
    fmt::print(stderr, "\rstep {} of {}: {:.3f} ms ", number, num_steps_, static_cast<double>(took.count()) * 1e-6);
    std::fflush(stderr);
  }

 private:
  int num_steps_;
  bool terminal_;
  bool open_ = false;
};

std::optional<int> mpirun_ranks() {
  const char* const size = std::getenv("OMPI_COMM_WORLD_SIZE");
  return size == nullptr ? std::nullopt : std::optional(std::atoi(size));
}

bool wants_mpi(const cli::Options& options) {
  const std::optional<int> started = mpirun_ranks();
  const std::string ranks = options.ranks.value_or(started ? "mpi" : "inproc");
  if (ranks != "mpi" && ranks != "inproc") {
    throw InputError(fmt::format("--ranks '{}' is unknown, legal are mpi and inproc", ranks));
  }
  if (ranks == "inproc" && started.value_or(1) > 1) {
    throw InputError(
        fmt::format("--ranks inproc under mpirun would run the whole pipeline {} times; use --ranks mpi", *started));
  }
  const int num_ranks = started.value_or(1);
  if (ranks == "mpi" && options.pp != num_ranks) {
    throw InputError(fmt::format("--pp is {}, but there are {} processes: start it by mpirun -n {}", options.pp,
                                 num_ranks, options.pp));
  }
  return ranks == "mpi";
}

void write_log(const std::string& path, const Setup& setup, std::span<const RankOutcome> outcomes) {
  const Program& program = *setup.plan.program;
  cli::write_file(path, [&](std::ostream& out) {
    const std::string made_by = setup.impairment == Impairment::none
                                    ? "plumb rehearse"
                                    : fmt::format("plumb rehearse --impair {}", name_of(setup.impairment).name);
    write_log_header(out, program, setup.plan.shape, made_by);
    for (std::size_t step = 0; step < outcomes.front().program.size(); ++step) {
      for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
        const MeasuredStep& measured = outcomes[rank].program[step];
        write_log_step(out, program, RankId(rank), measured.record, measured.agreed_start_ns);
      }
    }
  });
}

int conclude(const cli::Options& options, const Setup& setup, std::span<const RankOutcome> outcomes,
             const Usage& usage) {
  const RehearsalReport report = make_report(setup.plan, outcomes, setup.sim);
  if (!options.log.empty()) write_log(options.log, setup, outcomes);
  if (!options.trace.empty()) {
    cli::write_file(options.trace, [&](std::ostream& out) {
      write_trace(out, *setup.plan.program, setup.plan.costs, report.timeline);
    });
  }
  const std::string text = options.json ? report_json(setup, report, usage) + "\n" : report_table(setup, report, usage);
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    return say({cli::exit_environment, "config: cannot write to standard output"});
  }
  const std::string no = verdict(report);
  return no.empty() ? cli::exit_fine : say({cli::exit_no, "protocol: " + no});
}

Usage usage_since(double wall, double cpu) {
  return {wall_seconds() - wall, cpu_seconds() - cpu, static_cast<int>(std::thread::hardware_concurrency())};
}

int run_on_threads(const cli::Options& options, const Setup& setup) {
  LaunchOptions launch;
  launch.emulate_links = setup.emulate_links;
  std::vector<RankOutcome> outcomes;
  Usage usage;
  {
    Progress progress(setup.plan.steps);
    launch.on_step = [&](int number, std::chrono::nanoseconds took) { progress.step(number, took); };
    const double wall = wall_seconds();
    const double cpu = cpu_seconds();
    outcomes = rehearse_on_threads(setup.plan, launch);
    usage = usage_since(wall, cpu);
  }
  return conclude(options, setup, outcomes, usage);
}

// The first rank's problem that is not empty, or a difference between the ranks' flags; the same answer on all ranks.
Ending agree(ControlPlane& control, const Ending& mine, const std::string& flags) {
  const std::chrono::seconds limit(60);
  const std::vector<std::string> lines = control.exchange(fmt::format("{} {}", mine.code, mine.line), limit);
  const std::vector<std::string> all_flags = control.exchange(flags, limit);
  for (const std::string& text : lines) {
    const int code = std::atoi(text.c_str());
    if (code != 0) return {code, text.substr(text.find(' ') + 1)};
  }
  for (std::size_t rank = 1; rank < all_flags.size(); ++rank) {
    if (all_flags[rank] == all_flags[0]) continue;
    return {cli::exit_bad_input,
            fmt::format("config: the ranks were started with different flags: rank 0 with '{}', rank {} with '{}'",
                        all_flags[0], rank, all_flags[rank])};
  }
  return {};
}

int run_on_job(const cli::Options& options, const std::optional<Setup>& setup, const Ending& problem,
               const std::string& flags) {
  const std::unique_ptr<Job> job = Job::join();
  ControlPlane& control = job->control();
  const bool speaks = control.rank().value == 0;
  const Ending agreed = agree(control, problem, flags);
  if (agreed.code != 0) return speaks ? say(agreed) : agreed.code;
  try {
    LaunchOptions launch;
    launch.emulate_links = setup->emulate_links;
    std::optional<Progress> progress;
    if (speaks) {
      progress.emplace(setup->plan.steps);
      launch.on_step = [&](int number, std::chrono::nanoseconds took) { progress->step(number, took); };
    }
    const double wall = wall_seconds();
    const double cpu = cpu_seconds();
    const std::vector<RankOutcome> outcomes =
        rehearse_on_job(setup->plan, RankId(control.rank().value), job->transport(), control, launch);
    progress.reset();
    Usage usage = usage_since(wall, cpu);
    const std::vector<std::string> all_cpu = control.exchange(fmt::to_string(usage.cpu_s), std::chrono::seconds(60));
    usage.cpu_s = 0;
    for (const std::string& text : all_cpu)
      usage.cpu_s += std::atof(text.c_str());
    return speaks ? conclude(options, *setup, outcomes, usage) : cli::exit_fine;
  } catch (const std::exception& error) {
    const std::exception_ptr failure = std::current_exception();
    job->transport().fail(error.what());
    const Ending ending = ending_of(failure);
    // One line for the whole job: who failed first tells, the others only end.
    return is_echo(failure) ? ending.code : say(ending);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    cli::Options options;
    std::optional<Setup> setup;
    Ending problem;
    std::string flags;
    for (int i = 1; i < argc; ++i)
      flags += fmt::format("{}{}", i == 1 ? "" : " ", argv[i]);
    // plumb reads these flags too, so both refuse the same.
    std::vector<char*> arguments{const_cast<char*>("plumb"), const_cast<char*>("rehearse")};
    arguments.insert(arguments.end(), argv + 1, argv + argc);
    arguments.push_back(nullptr);
    bool mpi = mpirun_ranks().value_or(1) > 1;
    try {
      if (cli::parse(static_cast<int>(arguments.size()) - 1, arguments.data(), options) == cli::Parsed::done) return 0;
      mpi = wants_mpi(options);
      cli::require_files_apart({{"--log", options.log}, {"--trace", options.trace}}, cli::files_read(options),
                               options.json);
      setup = make_setup(options, available_memory_bytes());
    } catch (...) {
      problem = ending_of(std::current_exception());
    }
    if (mpi) return run_on_job(options, setup, problem, flags);
    return problem.code != 0 ? say(problem) : run_on_threads(options, *setup);
  } catch (...) {
    return say(ending_of(std::current_exception()));
  }
}
