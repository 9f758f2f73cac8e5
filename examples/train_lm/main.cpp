// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include "exit.hpp"
#include "output.hpp"
#include "plumb/schedule/error.hpp"
#include "train_lm/agreement.hpp"
#include "train_lm/ending.hpp"
#include "train_lm/launch.hpp"
#include "train_lm/mpi_job.hpp"
#include "train_lm/profile_file.hpp"
#include "train_lm/progress.hpp"
#include "train_lm/report_run.hpp"
#include "train_lm/run_log.hpp"
#include "train_lm/stats_file.hpp"

using namespace plumb::lm;

namespace {

// What a rank knows when it is ready to train, or why it is not.
struct Preparation {
  TrainOptions options;
  Output output = Output::run;
  bool mpi = false;
  std::optional<TrainPlan> plan;
  std::optional<Text> text;
  Ending problem;
};

std::optional<int> mpirun_ranks() {
  const char* const size = std::getenv("OMPI_COMM_WORLD_SIZE");
  return size == nullptr ? std::nullopt : std::optional(std::atoi(size));
}

bool wants_mpi(const TrainOptions& options) {
  const std::optional<int> started = mpirun_ranks();
  const std::string ranks = options.ranks.value_or(started ? "mpi" : "inproc");
  if (ranks != "mpi" && ranks != "inproc") {
    throw plumb::InputError(fmt::format("--ranks '{}' is unknown, legal are mpi and inproc", ranks));
  }
  if (ranks == "inproc" && started.value_or(1) > 1) {
    throw plumb::InputError(
        fmt::format("--ranks inproc under mpirun would run the whole pipeline {} times; use --ranks mpi", *started));
  }
  return ranks == "mpi";
}

// Every step needs the memory of the one before. Given back to the system in between, each page of the step's peak
// would be cleared and mapped anew, half as long again as the forward that first touches it.
void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

// A run should not find out at its end that it cannot save.
void require_writable(const std::string& folder) {
  if (folder.empty()) {
    return;
  }
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (!std::filesystem::is_directory(folder, code) || ::access(folder.c_str(), W_OK) != 0) {
    throw plumb::cli::EnvironmentError(fmt::format("--save {}: not a folder that can be written to", folder));
  }
}

// Whatever is written goes to a file of its own, and not over what is read.
void require_files_apart(const TrainOptions& options, const std::string& text) {
  plumb::cli::require_files_apart(
      {{"--log", options.log}, {"--stats", options.stats}, {"--profile-out", options.profile_out}}, {{"--text", text}},
      options.shared.json);
}

Preparation prepare(int argc, char** argv) {
  Preparation ready;
  ready.mpi = mpirun_ranks().has_value();
  try {
    ready.output = parse_train_options(argc, argv, ready.options);
    if (ready.output == Output::run) {
      ready.mpi = wants_mpi(ready.options);
      ready.plan =
          make_train_plan(ready.options, PLUMB_README, ready.mpi ? mpirun_ranks().value_or(1) : mpirun_ranks());
      ready.text = Text::load(ready.plan->text_path, ready.plan->model.sequence);
      ready.plan->facts.emplace_back(
          "--text", fmt::format("{} bytes, checksum {:016x}", ready.text->size_bytes(), ready.text->fingerprint()));
      require_writable(ready.plan->save_folder);
      require_files_apart(ready.options, ready.plan->text_path);
      set_compute_threads(ready.plan->threads);
    }
  } catch (...) {
    ready.problem = ending_of(std::current_exception());
  }
  return ready;
}

int say(const Ending& ending) {
  fmt::print(stderr, "{}\n", plumb::one_line(ending.line));
  return ending.code;
}

void announce(const TrainPlan& plan, const Text& text) {
  const plumb::Layout& layout = plan.chosen().layout;
  fmt::print(stderr, "{} ({}), width {}, {} heads, {} residual\n", plan.description, to_string(plan.model.dtype),
             plan.model.width, plan.model.heads, to_string(plan.model.residual));
  fmt::print(stderr, "{} ranks x {} virtual stages, {} microbatches of {} tokens; text {} ({} bytes)\n", layout.pp(),
             layout.vp(), layout.microbatches(), plan.model.tokens(), text.name(), text.size_bytes());
}

int conclude(const TrainPlan& plan, const TrainResult& result, bool json) {
  const std::string out = json ? result_json(plan, result) + "\n" : result_table(plan, result);
  if (std::fputs(out.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    return say({plumb::cli::exit_environment, "config: cannot write to standard output"});
  }
  const std::string no = verdict(plan, result);
  return no.empty() ? plumb::cli::exit_fine : say({plumb::cli::exit_no, no});
}

// Whom the speaking rank tells of a step: the person, and the files that were asked for.
class Listener final : public StepListener {
 public:
  explicit Listener(const Preparation& ready)
      : progress_(isatty(STDERR_FILENO) != 0), log_file_(ready.options.log), stats_file_(ready.options.stats) {
    if (!ready.options.log.empty()) {
      log_.emplace(ready.options.log, *ready.plan);
    }
    if (!ready.options.profile_out.empty()) {
      profile_.emplace(ready.options.profile_out, *ready.plan);
    }
    if (!ready.options.stats.empty()) {
      stats_.emplace(ready.options.stats);
    }
  }
  // Files of a run that ended early are told from whole ones.
  ~Listener() override {
    if (done_ == of_) {
      return;
    }
    for (const auto& [flag, file] : {std::pair("--log", log_file_), std::pair("--stats", stats_file_)}) {
      if (!file.empty()) {
        std::fprintf(stderr, "%s %s: ends after step %lld of %lld\n", flag, file.c_str(), static_cast<long long>(done_),
                     static_cast<long long>(of_));
      }
    }
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void step_done(const StepEvent& event) override {
    of_ = event.of;
    progress_.step_done(event);
    if (log_) {
      log_->write(event);
    }
    if (profile_) {
      profile_->add(event);
    }
    if (stats_) {
      stats_->write(event);
    }
    done_ = event.done;
  }

 private:
  Progress progress_;
  std::string log_file_;
  std::string stats_file_;
  std::int64_t done_ = 0;
  std::int64_t of_ = 0;
  std::optional<RunLog> log_;
  std::optional<ProfileFile> profile_;
  std::optional<StatsFile> stats_;
};

// The run of a rank that speaks: what it says before, meanwhile and at the end.
template <class Train>
int train_and_tell(const Preparation& ready, Listener& listener, const Train& train_with) {
  announce(*ready.plan, *ready.text);
  return conclude(*ready.plan, train_with(&listener), ready.options.shared.json);
}

int run_inproc(const Preparation& ready) {
  if (ready.problem.code != 0) {
    return say(ready.problem);
  }
  try {
    Listener told(ready);
    return train_and_tell(ready, told,
                          [&](StepListener* listener) { return train_inproc(*ready.plan, *ready.text, listener); });
  } catch (...) {
    return say(ending_of(std::current_exception()));
  }
}

int run_joined(const Preparation& ready, const RankLinks& links) {
  const bool speaks = links.rank.value == 0;
  Ending problem = ready.problem;
  std::optional<Listener> told;
  if (speaks && problem.code == 0) {
    try {
      told.emplace(ready);
    } catch (...) {
      problem = ending_of(std::current_exception());
    }
  }
  problem = agree_on_ending(links.control, problem);
  if (problem.code != 0) {
    return speaks ? say(problem) : problem.code;
  }
  agree_on_facts(links.control, ready.plan->facts);
  const auto train_with = [&](StepListener* listener) { return train(*ready.plan, *ready.text, links, listener); };
  if (speaks) {
    return train_and_tell(ready, *told, train_with);
  }
  train_with(nullptr);
  return plumb::cli::exit_fine;
}

int run_mpi(const Preparation& ready) {
  std::unique_ptr<MpiJob> job;
  try {
    job = MpiJob::join();
    return run_joined(ready, job->links());
  } catch (...) {
    // Each rank tells what it saw, before the others learn of it and MPI may be aborted.
    const Ending ending = ending_of(std::current_exception());
    say(ending);
    if (job) {
      job->links().transport->fail(ending.line);
    }
    return ending.code;
  }
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  const Preparation ready = prepare(argc, argv);
  if (ready.output == Output::done) {
    return plumb::cli::exit_fine;
  }
  return ready.mpi ? run_mpi(ready) : run_inproc(ready);
}
