// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <unistd.h>

#include "commands.hpp"
#include "exit.hpp"
#include "output.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/sizing/cluster_file.hpp"
#include "plumb/sizing/model_config.hpp"
#include "size_report.hpp"
#include "size_state.hpp"
#include "warnings.hpp"

namespace plumb::cli {
namespace {

constexpr int most_devices = 1 << 20;

template <class Value, class Parse>
std::vector<Value> parsed(const std::vector<std::string>& names, const Parse& parse) {
  std::vector<Value> values;
  for (const std::string& name : names)
    values.push_back(parse(name));
  return values;
}

Recompute parse_recompute(const std::string& name) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    if (name == to_string(recompute)) return recompute;
  }
  throw InputError(fmt::format("--recompute '{}' is unknown, legal are none, selective and full", name));
}

std::vector<int> positive(std::string_view flag, const std::vector<int>& values) {
  for (const int value : values) {
    if (value < 1) throw InputError(fmt::format("--{} {} is out of range: it must be at least 1", flag, value));
  }
  return values;
}

Settled resolve_settled(const SizeFlags& flags) {
  return {.pp = positive("pp", flags.pp),
          .vp = positive("vp", flags.vp),
          .tp = positive("tp", flags.tp),
          .ep = positive("ep", flags.ep),
          .dp = positive("dp", flags.dp),
          .microbatch = positive("microbatch", flags.microbatch),
          .schedules = parsed<ScheduleKind>(flags.schedules, [](auto& name) { return parse_schedule_kind(name); }),
          .policies = parsed<Policy>(flags.policies, [](auto& name) { return parse_policy(name); }),
          .recomputes = parsed<Recompute>(flags.recomputes, parse_recompute),
          .shardings = parsed<Sharding>(flags.shardings, [](auto& name) { return parse_sharding(name); })};
}

// Sublayers per block; 0: an ordinary residual stream.
int resolve_block(const Options& options) {
  const ModelConfig model = load_model(*options.model);
  const std::string residual = options.residual.value_or("");
  if (options.residual && residual != "standard" && residual != "attnres-block") {
    throw InputError(fmt::format("--residual '{}' is not sized, only standard and attnres-block are", residual));
  }
  if (residual == "standard" && options.block_layers) {
    throw InputError("--block-layers does not go with --residual standard");
  }
  if (residual == "standard") return 0;
  const std::optional<int> layers = options.block_layers ? options.block_layers : model.block_decoder_layers;
  if (!layers) {
    if (residual.empty()) return 0;
    throw InputError(fmt::format("{} has no attn_res_block_size: give --block-layers K (automatic would be {})",
                                 model.name, automatic_block_layers(model.decoder_layers)));
  }
  if (*layers < 1 || *layers > model.decoder_layers) {
    throw InputError(fmt::format("--block-layers is {}, legal are 1 to {}", *layers, model.decoder_layers));
  }
  return *layers * sublayers_per_decoder_layer;
}

SizeRequest resolve_request(const Options& options, const Cluster& cluster) {
  const SizeFlags& flags = options.size;
  if (flags.gpus < 1 || flags.gpus > most_devices) {
    throw InputError(fmt::format("--gpus is {}, legal are 1 to {}", flags.gpus, most_devices));
  }
  SizeRequest request;
  request.shape = load_shape(*options.model);
  request.block_sublayers = resolve_block(options);
  request.cluster = cluster;
  request.gpus = flags.gpus;
  request.global_batch = flags.global_batch.value_or(flags.gpus);
  constexpr std::int64_t most_sequences = std::int64_t{1} << 24;
  if (request.global_batch < 1 || request.global_batch > most_sequences) {
    throw InputError(fmt::format("--global-batch is {}, legal are 1 to {}", request.global_batch, most_sequences));
  }
  request.sequence = options.sequence.value_or(4096);
  constexpr int longest = 1 << 22;
  if (request.sequence < 1 || request.sequence > longest) {
    throw InputError(fmt::format("--sequence is {}, legal are 1 to {}", request.sequence, longest));
  }
  const double usable = cluster.gpu.mem_GiB * cluster.gpu.usable_mem_fraction;
  const double limit = flags.memory_limit_gib.value_or(usable);
  if (!(limit > 0) || limit > cluster.gpu.mem_GiB) {
    throw InputError(fmt::format("--memory-limit {:g} is out of range: {} has {:g} GiB, of which {:g} are to use",
                                 limit, cluster.gpu.name, cluster.gpu.mem_GiB, usable));
  }
  request.memory_bytes = limit * (1 << 30);
  request.gradient_wire = parse_gradient_wire(options.grad_wire);
  request.settled = resolve_settled(flags);
  return request;
}

// SIGINT and SIGTERM wait to be asked for, so that a search ends with what it knows. As before when it goes.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&held_);
    sigaddset(&held_, SIGINT);
    sigaddset(&held_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &held_, &before_);
  }
  // What came is taken, so that it does not end the process after all.
  ~HeldSignals() {
    const timespec at_once{};
    while (sigtimedwait(&held_, nullptr, &at_once) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // The number of one that came, or 0.
  int came() const {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGINT) == 1 ? SIGINT : sigismember(&pending, SIGTERM) == 1 ? SIGTERM : 0;
  }

 private:
  sigset_t held_{};
  sigset_t before_{};
};

// One line that is written over, on terminals only.
class ProgressLine {
 public:
  ProgressLine() : shown_(isatty(STDERR_FILENO) == 1) {}
  ~ProgressLine() {
    if (shown_) fmt::print(stderr, "\r\x1b[K");
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const SearchProgress& progress) const {
    if (!shown_) return;
    constexpr std::size_t width = 30;
    const std::size_t all = progress.decided + progress.left;
    const std::size_t done = all == 0 ? width : width * progress.decided / all;
    fmt::print(stderr, "\r\x1b[K[{:#<{}}{:.<{}}] {} simulated, {} of {} left to decide", "", done, "", width - done,
               progress.evaluated, progress.left, all);
    if (progress.best_step_us > 0) fmt::print(stderr, ", best {:.3f} s", progress.best_step_us * 1e-6);
  }

 private:
  bool shown_;
};

int interrupted(int signal, const SearchResult& result, const SizeFlags& flags) {
  std::fflush(stdout);
  fmt::print(stderr, "abort-deadline: stopped by signal {} after {} simulations; {}\n", signal, result.num_evaluated,
             flags.state.empty() ? "with --state FILE the next run could go on from there"
                                 : fmt::format("the same command goes on from {}", flags.state));
  constexpr int of_shells = 128;
  return of_shells + signal;
}

}  // namespace

int run_size(const Options& options) {
  const ReadCluster read = load_cluster(*options.cluster);
  const SizeRequest request = resolve_request(options, read.cluster);
  const SizeFlags& flags = options.size;
  constexpr int most_threads = 1024;
  if (flags.threads && (*flags.threads < 1 || *flags.threads > most_threads)) {
    throw InputError(fmt::format("--threads is {}, legal are 1 to {}", *flags.threads, most_threads));
  }
  candidate_families(request);  // a request that is refused leaves no file and can be interrupted meanwhile
  std::unique_ptr<SizeState> state;
  SearchOptions search_options{.num_threads = flags.threads.value_or(0)};
  if (!flags.state.empty()) {
    state = std::make_unique<SizeState>(flags.state, digest_of(request), fmt::format("{} devices", request.gpus));
    search_options.recall = [&](const Candidate& candidate) { return state->recall(candidate); };
    search_options.record = [&](std::span<const Evaluated> fresh) { state->record(fresh); };
  }
  print_warnings(warnings_of(options));
  SearchResult result;
  int signal = 0;
  {
    const HeldSignals signals;
    search_options.stop = [&] { return signals.came() != 0; };
    const ProgressLine line;
    search_options.progress = [&](const SearchProgress& progress) { line.show(progress); };
    result = search(request, search_options);
    signal = signals.came();
  }
  const bool none_fits = result.is_complete && result.best.empty();
  std::optional<Misfit> misfit;
  if (none_fits) {
    misfit = misfit_of(request, result.smallest ? *result.smallest : smallest_candidates(request, 1).front());
  }
  std::vector<Missed> missed;
  if (result.is_complete && !result.best.empty()) missed = missed_of(request, result.best.front());
  fmt::print("{}", options.json ? size_json(options, request, result, misfit, missed)
                                : size_text(options, request, result, missed));
  if (!result.is_complete) return interrupted(signal, result, flags);
  if (!none_fits) return exit_fine;
  std::fflush(stdout);
  fmt::print(stderr, "memory: {}\n", misfit_text(request, *misfit));
  return exit_no;
}

}  // namespace plumb::cli
