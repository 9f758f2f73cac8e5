// SPDX-License-Identifier: Apache-2.0
// The only file of this program that includes CLI11, which is slow to compile.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "decimal.hpp"
#include "exit.hpp"
#include "plumb/schedule/named.hpp"
#include "train_lm/train_options.hpp"

namespace plumb::lm {

namespace {

std::string schedule_names() {
  std::string names;
  for (const ScheduleKind kind : all_schedule_kinds()) {
    names += fmt::format("{}, ", to_string(kind));
  }
  return names + "auto";
}

void add_layout(CLI::App& app, cli::Options& o) {
  app.add_option("--pp", o.pp, "pipeline ranks P; under mpirun its number of ranks [1]");
  app.add_option("--vp", o.vp, "virtual stages per rank V [1]");
  app.add_option("--microbatches", o.microbatches, "microbatches per step M [2*P]");
  app.add_option("--placement", o.placement, "loop or vee [the schedule's own]");
  app.add_option("--schedule", o.schedule, schedule_names() + " [1f1b if V=1, else interleaved]");
  app.add_option("--group", o.group, "microbatches per group of interleaved and zb-h1 [P]");
  app.add_option("--group-rule", o.group_rule,
                 "groups of N with a shorter last one (megatron), or equal (torch) [megatron]");
  app.add_option("--cuts", o.cuts, "even, auto, or the sublayer counts at which chunks end: a,b,... [even]");
  app.add_option("--cache", o.cache,
                 "routing policy: naive, relay, cached or direct; steps 2 to 4 run the others [cached]");
  app.add_option("--post-ahead", o.post_ahead, "computations by which receives are posted early [1]");
}

void add_model(CLI::App& app, TrainOptions& o) {
  app.add_option("--layers", o.shared.layers, "depth in decoder layers, 2 sublayers each [8]");
  app.add_option("--block-layers", o.shared.block_layers, "decoder layers per block [ceil(layers/8)]");
  app.add_option("--sublayers", o.shared.sublayers, "depth in sublayers L, instead of --layers");
  app.add_option("--block", o.shared.block, "sublayers per block S, with --sublayers [ceil(L/8)]");
  app.add_option("--model", o.shared.model, "depth and width of kimi-k3, kimi-linear-48b or a config.json");
  app.add_option("--residual", o.shared.residual, "standard, attnres-block or attnres-full [attnres-block]");
  app.add_option("--hidden", o.shared.hidden, "width d [128, or the model's]");
  app.add_option("--heads", o.heads, "attention heads [hidden/32]");
  app.add_option("--seq", o.sequence, "tokens of a sequence [64]");
  app.add_option("--tokens", o.tokens, "tokens of a microbatch, a multiple of --seq [2*seq]");
  app.add_option("--dtype", o.dtype, "bf16, fp16, fp32 or fp64: of blocks and of what layers read and write [fp32]");
  app.add_option("--grad-wire", o.shared.grad_wire,
                 "gradients on the wire: fp32; storage where that is the same [fp32]");
}

void add_training(CLI::App& app, TrainOptions& o) {
  app.add_option("--text", o.text, "the text to learn [a licence text of this machine]");
  app.add_option("--steps", o.steps, "optimizer steps [50]");
  app.add_option("--lr", o.learning_rate, "learning rate of AdamW [0.003]");
  app.add_option("--seed", o.seed, "of the initial parameters and the order of the text [0]");
  app.add_option("--recompute", o.recompute, "none, or full: a chunk's forward runs again in its backward [none]");
  app.add_option("--ranks", o.ranks, "mpi, or inproc: ranks are threads [mpi under mpirun, else inproc]");
  app.add_option("--threads", o.threads, "threads of each rank [1]");
  app.add_option("--device", o.device, "cpu [cpu]");
  app.add_flag("--check", o.check, "train the same model in one process in plain torch and compare");
  app.add_option("--save", o.save, "write a checkpoint into this folder at the end");
  app.add_option("--load", o.load, "continue from the checkpoint in this folder, under any layout");
  app.add_option("--log", o.log, "write what happened in every step to this file, for plumb sim --against");
  app.add_option("--profile-out", o.profile_out,
                 "write what each action of each chunk took at least to this file, for plumb sim --profile");
  app.add_option("--stats", o.stats, "write what depth attention does to this file, and a picture of it beside");
  app.add_option("--stats-every", o.stats_every, "steps between two that --stats records [1]");
  app.add_flag("--json", o.shared.json, "one JSON object on stdout");
}

}  // namespace

Output parse_train_options(int argc, char** argv, TrainOptions& options) {
  CLI::App app("Trains a byte-level language model with attention over depth, as a pipeline of ranks.", "plumb train");
  app.set_version_flag("--version", "plumb-train " PLUMB_VERSION);
  add_layout(app, options.shared);
  add_model(app, options);
  add_training(app, options);
  cli::require_decimals(app);
  for (int i = 1; i < argc; ++i) {  // CLI11 takes an empty value for "not given"
    const std::string_view argument = argv[i];
    if (argument.empty() || (argument.starts_with("--") && argument.ends_with('='))) {
      throw cli::UsageError(fmt::format("an empty value stands at '{}' (see plumb train --help)",
                                        argument.empty() ? argv[i - 1] : argument));
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    app.exit(success);
    return Output::done;
  } catch (const CLI::ParseError& error) {
    std::string line = error.what();
    for (char& c : line) {
      c = c == '\n' ? ' ' : c;
    }
    throw cli::UsageError(fmt::format("{} (see plumb train --help)", line));
  }
  return Output::run;
}

}  // namespace plumb::lm
