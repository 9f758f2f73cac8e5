// SPDX-License-Identifier: Apache-2.0
// The only file that includes CLI11: it costs more compile time than all the rest of the command.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "decimal.hpp"
#include "exit.hpp"
#include "options.hpp"
#include "plumb/schedule/named.hpp"

namespace plumb::cli {

namespace {

void add_layout(CLI::App& app, Options& o) {
  app.add_option("--pp", o.pp, "pipeline ranks P [1]");
  app.add_option("--vp", o.vp, "virtual stages per rank V [1]");
  app.add_option("--microbatches", o.microbatches, "microbatches per step M [2*P]");
  app.add_option("--placement", o.placement, "loop or vee [the schedule's own, else loop]");
}

void add_schedule(CLI::App& app, Options& o, const std::string& more = "") {
  std::string names;
  for (const ScheduleKind kind : all_schedule_kinds()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(kind));
  }
  app.add_option("--schedule", o.schedule, names + more + " [1f1b if V=1, else interleaved]");
}

void add_depth(CLI::App& app, Options& o) {
  app.add_option("--model", o.model, "kimi-k3, kimi-linear-48b or the path of a config.json");
  app.add_option("--sublayers", o.sublayers, "depth in sublayers L");
  app.add_option("--block", o.block, "sublayers per block S [ceil(L/8)]");
  app.add_option("--layers", o.layers, "depth in decoder layers (2 sublayers each)");
  app.add_option("--block-layers", o.block_layers, "decoder layers per block [the model's, else ceil(layers/8)]");
  app.add_option(
      "--cuts", o.cuts,
      "even, auto (no chunk heavier, the least traffic), or the sublayer counts at which chunks end: a,b,... "
      "(the last may be left out) [even]");
  app.add_option("--layout", o.layout, "Megatron's layout instead of --vp and --cuts: \"Et*3|(tt|)*29,m|L\"");
  app.add_option("--residual", o.residual,
                 "standard, hc:M, mhc:M (M streams), denseformer, muddformer, deepnet, attnres-full, attnres-block or "
                 "mhc:M+attnres-block; run are standard, attnres-block and attnres-full [attnres-block]");
}

void add_sizes(CLI::App& app, Options& o) {
  app.add_option("--hidden", o.hidden, "width d [the model's, else 1024]");
  app.add_option("--tokens", o.tokens, "tokens per microbatch T [4096]");
  app.add_option("--dtype", o.dtype, "bf16, fp16, fp32 or fp64 [bf16]");
  app.add_option("--grad-wire", o.grad_wire, "gradients on the wire: storage or fp32 [fp32]");
}

void add_order(CLI::App& app, Options& o, const std::string& more = "") {
  add_schedule(app, o, ", auto (searched for the costs given)" + more);
  app.add_option("--group", o.group, "microbatches per group of interleaved and zb-h1 [P]");
  app.add_option("--group-rule", o.group_rule,
                 "groups of N with a shorter last one (megatron), or equal (torch) [megatron]");
  app.add_option("--cache", o.cache, "routing policy: naive, relay, cached or direct [cached]");
  app.add_option("--post-ahead", o.post_ahead, "computations by which receives are posted early [1]");
}

void add_costs(CLI::App& app, Options& o, const std::string& hop, const std::string& rate) {
  app.add_option("--action-us", o.action_us,
                 "microseconds per chunk: F=1000,I=1000,W=1000; B = I + W, or from B its halves");
  app.add_option(
      "--costs", o.costs,
      "depth: times in proportion to a chunk's sublayers; model: by the layers and head of --model, see --teraflops "
      "[every chunk alike]");
  app.add_option("--teraflops", o.teraflops, "what one rank reaches, for --costs model [400]");
  app.add_option("--memory-chunks", o.memory_chunks,
                 "chunk activations that a rank may hold, for --schedule auto [any number]");
  app.add_option("--hop-us", o.hop_us, "latency of a message in microseconds " + hop);
  app.add_option("--hop-GBps", o.hop_gbps, "rate of a link per direction in GB/s, or inf " + rate);
  app.add_option("--unit-us", o.unit_us, "time of one [tokens, d] tensor on a link, instead of --hop-GBps");
}

void add_cluster(CLI::App& app, Options& o) {
  app.add_option("--cluster", o.cluster,
                 "times and links of --model on a100, h100, h200, b200, gb200-nvl72, pcie-box, ethernet-25g or a file");
  app.add_option("--tp", o.tp, "devices that share a layer by heads and channels, with --cluster [1]");
  app.add_option("--ep", o.ep, "devices of a stage over which experts are dealt out, with --cluster [1]");
  app.add_option("--dp", o.dp, "replicas of a stage, with --cluster [1]");
  app.add_option("--sequence", o.sequence, "tokens that attend to each other, with --cluster [--tokens]");
  app.add_option("--recompute", o.recompute, "none, selective or full, with --cluster [none]");
  app.add_option(
      "--sharding", o.sharding,
      "what replicas hold a part of each: none, optimizer or gradients (and optimizer), with --cluster [none]");
  app.add_flag("--show-cluster", o.show_cluster, "print the cluster as it was understood");
  app.add_option("--profile", o.profile, "measured seconds per action and chunk: a file of plumb train --profile-out");
}

void add_compare(CLI::App& app, Options& o) {
  app.add_option("--compare", o.compare,
                 "schedules to set side by side: S1,S2,..., auto among them, or all that have names");
}

void add_compare_residual(CLI::App& app, Options& o) {
  app.add_option("--compare-residual", o.compare_residual,
                 "residual designs to set side by side: R1,R2,... of --residual, or all");
}

void add_json(CLI::App& app, Options& o) { app.add_flag("--json", o.json, "one JSON object on stdout"); }

CLI::App* add_volume(CLI::App& app, Options& o) {
  CLI::App* sub = app.add_subcommand("volume", "how many tensors cross the ranks under each routing policy");
  add_layout(*sub, o);
  add_schedule(*sub, o);  // says the placement
  add_depth(*sub, o);
  add_sizes(*sub, o);
  add_compare_residual(*sub, o);
  add_json(*sub, o);
  return sub;
}

CLI::App* add_plan(CLI::App& app, Options& o) {
  CLI::App* sub = app.add_subcommand("plan", "the program of every rank: as text, drawing, trace, torch CSV or JSON");
  add_layout(*sub, o);
  add_depth(*sub, o);
  add_order(*sub, o, ", or FILE.csv in torch's format");
  sub->add_option("--format", o.format, "text, csv, csv-comms, json, svg or trace (for ui.perfetto.dev) [text]");
  sub->add_option("-o,--output", o.output, "write to FILE instead of stdout");
  add_compare(*sub, o);
  add_sizes(*sub, o);
  add_costs(*sub, o, "[messages are free unless a link is given]", "[50 where a link is given]");
  add_json(*sub, o);
  return sub;
}

CLI::App* add_check(CLI::App& app, Options& o) {
  CLI::App* sub =
      app.add_subcommand("check", "is a schedule (CSV) or program (JSON) complete, legal and free of deadlock?");
  sub->add_option("file", o.file, "a torch schedule CSV (with communication or without) or a program JSON; - for stdin")
      ->required();
  sub->add_option(
      "--channels", o.channels,
      "which to try, one or several: buffered, fifo-per-edge, fifo-per-pair, shared-fifo, single-stream, rendezvous "
      "[all of them]");
  sub->add_flag("--shared-fifo", o.shared_fifo,
                "the same as --channels shared-fifo: one queue for both directions of a pair");
  sub->add_flag("--legacy", o.legacy, "torch's old CSV dialect: B input gradient, W, BW full backward");
  sub->add_option("--placement", o.placement, "loop or vee [the one that fits]");
  add_json(*sub, o);
  return sub;
}

CLI::App* add_sim(CLI::App& app, Options& o) {
  CLI::App* sub = app.add_subcommand("sim", "simulate one step: time, bubble, traffic, memory");
  add_layout(*sub, o);
  add_depth(*sub, o);
  add_sizes(*sub, o);
  add_order(*sub, o, ", or FILE.csv in torch's format");
  add_costs(*sub, o, "[200]", "[50]");
  add_cluster(*sub, o);
  sub->add_option("--trace", o.trace, "write a Chrome trace for ui.perfetto.dev to FILE");
  sub->add_option("--html", o.html,
                  "write a page for any browser to FILE: timeline, memory, traffic, overhead; it needs no network");
  add_compare(*sub, o);
  add_compare_residual(*sub, o);
  sub->add_option("--against", o.against,
                  "compare with a run: the event log that plumb rehearse or plumb train --log wrote");
  sub->add_flag("--single-stream", o.single_stream,
                "one communication stream per rank: one message at a time, in or out, in the order of the program");
  sub->add_option("--sharing", o.sharing,
                  "how messages use a rank's card: exclusive, one after the other, urgent first; or fair, all at once "
                  "[exclusive; fair with --streams]");
  sub->add_option("--streams", o.streams,
                  "with fair sharing: unordered, or operations in program order on streams of a rank: single, "
                  "per-direction (four), or batched (groups that end together) [unordered]");
  sub->add_option("--eager-bytes", o.eager_bytes,
                  "with fair sharing: messages of at most that many bytes do not wait for their receive [0]");
  sub->add_option("--launch-us", o.launch_us, "with fair sharing: what starting a send or receive takes [0]");
  sub->add_option("--comm-share", o.comm_share,
                  "with --streams: part of a rank's compute that messages under way take, 0..0.95 [0]");
  sub->add_flag(
      "--what-if", o.what_if,
      "the chain of computations and messages that makes the step, and what being 10 % faster somewhere saves");
  sub->add_flag("--compare-cache", o.compare_cache, "every routing policy against the standard residual");
  add_json(*sub, o);
  return sub;
}

CLI::App* add_size(CLI::App& app, Options& o) {
  CLI::App* sub = app.add_subcommand(
      "size", "the best layouts of a model on N devices, and what is best in time, memory and network");
  SizeFlags& f = o.size;
  sub->add_option("--model", o.model, "kimi-k3, kimi-linear-48b or the path of a config.json")->required();
  sub->add_option("--gpus", f.gpus, "devices N")->required();
  sub->add_option("--cluster", o.cluster,
                  "a100, h100, h200, b200, gb200-nvl72, pcie-box, ethernet-25g or a file (docs/clusters.md)")
      ->required();
  sub->add_option("--global-batch", f.global_batch, "sequences per step [N]");
  sub->add_option("--sequence", o.sequence, "tokens of a sequence [4096]");
  sub->add_option("--memory-limit", f.memory_limit_gib, "GiB of a device to use [mem_GiB x usable_mem_fraction]");
  sub->add_option("--residual", o.residual, "standard or attnres-block [as the model says]");
  sub->add_option("--block-layers", o.block_layers, "decoder layers per block [the model's]");
  sub->add_option("--grad-wire", o.grad_wire, "gradients on the wire: storage or fp32 [fp32]");
  const auto settle = [&](const char* flag, auto& values, const char* what) {
    sub->add_option(flag, values, std::string(what) + ", one or several: a,b,... [any]")->delimiter(',');
  };
  settle("--pp", f.pp, "pipeline ranks");
  settle("--vp", f.vp, "virtual stages per rank");
  settle("--tp", f.tp, "devices that share a layer");
  settle("--ep", f.ep, "devices over which experts are dealt out");
  settle("--dp", f.dp, "replicas");
  settle("--microbatch", f.microbatch, "sequences per microbatch");
  settle("--schedule", f.schedules, "schedules");
  settle("--cache", f.policies, "routing policies");
  settle("--recompute", f.recomputes, "none, selective or full");
  settle("--sharding", f.shardings, "over replicas: none, optimizer or gradients");
  sub->add_option("--state", f.state, "go on from FILE, and write there what is simulated");
  sub->add_option("--threads", f.threads, "threads [all cores]");
  add_json(*sub, o);
  return sub;
}

// The sibling plumb-rehearse reads the same flags with this same function.
CLI::App* add_rehearse(CLI::App& app, Options& o) {
  CLI::App* sub = app.add_subcommand(
      "rehearse", "run a step on the real runtime with emulated accelerators and links (plumb-rehearse)");
  add_layout(*sub, o);
  add_depth(*sub, o);
  add_sizes(*sub, o);
  add_order(*sub, o);
  add_costs(*sub, o, "[200]", "[50]");
  sub->add_option("--unit-bytes", o.unit_bytes, "real bytes of one value; its time is that of the flags above [65536]");
  sub->add_option("--ranks", o.ranks, "mpi, or inproc: ranks are threads [mpi under mpirun, else inproc]");
  sub->add_option("--steps", o.steps, "measured steps, alternating with as many of a standard residual [5]");
  sub->add_option("--links", o.links, "emulated, or real: messages take what they take [emulated]");
  sub->add_option("--impair", o.impair,
                  "what to do without: lanes (one queue per edge), priority (of urgent messages), overlap "
                  "(communication waits for computation), single-stream (one message at a time per rank) or "
                  "unplanned-stream (the same, planned for lanes) [none]");
  sub->add_option("--log", o.log, "write every action and message to FILE as JSON lines");
  sub->add_option("--trace", o.trace, "write a Chrome trace of the median step for ui.perfetto.dev to FILE");
  add_json(*sub, o);
  return sub;
}

// CLI11 takes an empty value for "not given"; somebody's unset shell variable must not pass for a default.
void refuse_empty_values(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.empty()) {
      throw UsageError(fmt::format("an empty value stands after '{}'", argv[i - 1]));
    }
    if (argument.size() > 3 && argument.starts_with("--") && argument.ends_with('=')) {
      throw UsageError(fmt::format("'{}' has an empty value", argument));
    }
  }
}

// As the layout, the depth and the commands refuse them.
constexpr LegalRange ranges_of_steps[] = {
    {"--pp", 1, 4096},        {"--vp", 1, 1024},        {"--microbatches", 1, 1 << 20}, {"--sublayers", 1, 1 << 20},
    {"--layers", 1, 1 << 19}, {"--hidden", 1, 1 << 20}, {"--tokens", 1, 1 << 30},       {"--post-ahead", 0, 64}};
constexpr LegalRange ranges_of_size[] = {
    {"--gpus", 1, 1 << 20}, {"--global-batch", 1, 1 << 24}, {"--sequence", 1, 1 << 22}, {"--threads", 1, 1024}};

void refuse_unknown_command(const CLI::App& app, int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  std::string known;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command == sub->get_name()) {
      return;
    }
    known += (known.empty() ? "" : ", ") + sub->get_name();
  }
  if (!command.starts_with('-')) {
    throw UsageError(command.empty() ? fmt::format("a command is needed: {}", known)
                                     : fmt::format("'{}' is no command; there are {}", command, known));
  }
}

}  // namespace

Parsed parse(int argc, char** argv, Options& options) {
  CLI::App app("Pipeline-parallel training of models with Attention Residuals: size, prove, simulate, run.", "plumb");
  app.set_version_flag("--version", "plumb " PLUMB_VERSION);
  app.require_subcommand(1);
  add_volume(app, options);
  add_plan(app, options);
  add_check(app, options);
  add_sim(app, options);
  add_size(app, options);
  add_rehearse(app, options);
  for (CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    require_decimals(*sub, sub->get_name() == "size" ? std::span<const LegalRange>(ranges_of_size) : ranges_of_steps);
  }
  // Siblings parse their own flags, --help included.
  for (const auto& [name, about] : {std::pair{"train", "train a language model through the runtime (plumb-train)"},
                                    std::pair{"bench", "measure runtime and kernels (plumb-bench)"},
                                    std::pair{"doctor", "what this build and this machine have (plumb-doctor)"}}) {
    CLI::App* sub = app.add_subcommand(name, about);
    sub->set_help_flag();
    sub->prefix_command();
  }
  refuse_unknown_command(app, argc, argv);
  if (const std::string_view command = argc > 1 ? argv[1] : ""; command != "train" && command != "bench") {
    refuse_empty_values(argc, argv);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    app.exit(success);
    return Parsed::done;
  } catch (const CLI::ParseError& error) {
    std::string line = error.what();
    for (char& c : line) {
      c = c == '\n' ? ' ' : c;
    }
    throw UsageError(fmt::format("{} (see plumb {}--help)", line,
                                 app.get_subcommands().empty() ? "" : app.get_subcommands().front()->get_name() + " "));
  }
  const CLI::App* chosen = app.get_subcommands().front();
  options.subcommand = chosen->get_name();
  options.rest = chosen->remaining();
  if (options.subcommand == "rehearse") {
    options.rest.assign(argv + 2, argv + argc);
  }
  return Parsed::run;
}

}  // namespace plumb::cli
