// SPDX-License-Identifier: Apache-2.0
#include "size_advice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plumb/schedule/megatron_layout.hpp"

namespace plumb::cli {
namespace {

std::string order_flags(const Candidate& c) {
  std::string text =
      fmt::format("--pp {} --vp {} --microbatches {} --schedule {}", c.pp, c.vp, c.microbatches, to_string(c.schedule));
  if (c.group > 0) text += fmt::format(" --group {}", c.group);
  return text;
}

// A word for the shell.
std::string quoted(const std::string& text) {
  if (text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=+:,") ==
      std::string::npos) {
    return text;
  }
  std::string word = "'";
  for (const char c : text)
    word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace

std::string sim_command(const Options& options, const SizeRequest& request, const Candidate& c) {
  std::string text = fmt::format("plumb sim --model {} --cluster {} {}", quoted(*options.model),
                                 quoted(*options.cluster), order_flags(c));
  text += fmt::format(" --cuts {}", fmt::join(cuts_of(request, c), ","));
  if (options.block_layers) text += fmt::format(" --block-layers {}", *options.block_layers);
  text += c.policy == Policy::standard ? " --residual standard" : fmt::format(" --cache {}", to_string(c.policy));
  text += fmt::format(" --tp {} --ep {} --dp {} --tokens {} --sequence {} --recompute {}", c.degrees.tp, c.degrees.ep,
                      c.degrees.dp, c.microbatch * request.sequence, request.sequence, to_string(c.recompute));
  if (c.sharding != Sharding::none) text += fmt::format(" --sharding {}", to_string(c.sharding));
  if (request.gradient_wire != GradientWire::fp32) text += " --grad-wire storage";
  return text;
}

std::string plan_command(const Candidate& candidate, const std::string& output) {
  return fmt::format("plumb plan --format csv {} -o {}", order_flags(candidate), output);
}

bool megatron_runs(const Candidate& candidate) {
  return candidate.schedule == ScheduleKind::one_f_one_b || candidate.schedule == ScheduleKind::interleaved;
}

std::string megatron_layout(const SizeRequest& request, const Candidate& candidate) {
  return megatron_layout_text(cuts_of(request, candidate));
}

std::vector<std::string> megatron_flags(const SizeRequest& request, const Candidate& c) {
  std::vector<std::string> flags{fmt::format("--pipeline-model-parallel-size {}", c.pp),
                                 fmt::format("--tensor-model-parallel-size {}", c.degrees.tp)};
  if (c.degrees.tp > 1) flags.push_back("--sequence-parallel");
  if (c.degrees.ep > 1) {
    flags.push_back(fmt::format("--expert-model-parallel-size {}", c.degrees.ep));
    flags.push_back("--expert-tensor-parallel-size 1");
  }
  if (c.group > 0) flags.push_back(fmt::format("--microbatch-group-size-per-virtual-pipeline-stage {}", c.group));
  flags.push_back(fmt::format("--micro-batch-size {}", c.microbatch));
  flags.push_back(fmt::format("--global-batch-size {}", request.global_batch));
  flags.push_back(fmt::format("--seq-length {}", request.sequence));
  if (c.recompute == Recompute::selective) flags.push_back("--recompute-granularity selective");
  if (c.recompute == Recompute::full) {
    flags.push_back("--recompute-granularity full");
    flags.push_back("--recompute-method uniform");
    flags.push_back("--recompute-num-layers 1");
  }
  if (c.sharding == Sharding::optimizer) flags.push_back("--use-distributed-optimizer");
  if (c.sharding == Sharding::gradients) {
    flags.push_back("--use-megatron-fsdp");
    flags.push_back("--data-parallel-sharding-strategy optim_grads");
  }
  return flags;
}

std::string torchtitan_schedule(const Candidate& candidate) {
  switch (candidate.schedule) {
    case ScheduleKind::one_f_one_b:
      return "1F1B";
    case ScheduleKind::interleaved:
      return "Interleaved1F1B";
    case ScheduleKind::gpipe:
      return "GPipe";
    case ScheduleKind::looped_bfs:
      return "LoopedBFS";
    case ScheduleKind::zb_h1:
      return "InterleavedZeroBubble";
    case ScheduleKind::zb_v:
      return "ZBVZeroBubble";
    case ScheduleKind::dualpipe_v:
      return "DualPipeV";
    case ScheduleKind::v_half:
    case ScheduleKind::v_min:
      break;
  }
  return "";
}

std::string torchtitan_toml(const SizeRequest& request, const Candidate& c, const std::string& csv) {
  std::string text = fmt::format("[training]\nlocal_batch_size = {}\nglobal_batch_size = {}\nseq_len = {}\n\n",
                                 c.microbatches * c.microbatch, request.global_batch, request.sequence);
  text += fmt::format("[parallelism]\npipeline_parallel_degree = {}\npipeline_parallel_microbatch_size = {}\n", c.pp,
                      c.microbatch);
  const std::string name = torchtitan_schedule(c);
  // Another group than torch's own, or an order that it does not know: the table says everything.
  if (name.empty() || c.group > 0) {
    text += fmt::format(
        "pipeline_parallel_schedule = \"PipelineScheduleMulti\"\n"
        "pipeline_parallel_schedule_csv = \"{}\"\n",
        csv);
  } else {
    text += fmt::format("pipeline_parallel_schedule = \"{}\"\n", name);
  }
  text += fmt::format("tensor_parallel_degree = {}\n", c.degrees.tp);
  if (c.degrees.ep > 1) text += fmt::format("expert_parallel_degree = {}\n", c.degrees.ep);
  text += c.sharding == Sharding::none
              ? fmt::format("data_parallel_replicate_degree = {}\ndata_parallel_shard_degree = 1\n", c.degrees.dp)
              : fmt::format(
                    "data_parallel_replicate_degree = 1\ndata_parallel_shard_degree = {}\n"
                    "fsdp_reshard_after_forward = \"never\"\n",
                    c.degrees.dp);
  return text + fmt::format("\n[activation_checkpoint]\nmode = \"{}\"\n", to_string(c.recompute));
}

}  // namespace plumb::cli
