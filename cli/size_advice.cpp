// SPDX-License-Identifier: Apache-2.0
#include "size_advice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plumb/schedule/megatron_layout.hpp"
#include "plumb/sizing/model_config.hpp"

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

namespace {

// torchtitan's classes. A placement in V comes from two of them only, another order in V is read as a table by the
// first; every other table is read by one that lays out loops.
std::string torchtitan_class(const Candidate& candidate) {
  switch (candidate.schedule) {
    case ScheduleKind::one_f_one_b:
      return "1F1B";
    case ScheduleKind::gpipe:
      return "GPipe";
    case ScheduleKind::looped_bfs:
      return "LoopedBFS";
    case ScheduleKind::interleaved:
      return candidate.group > 0 ? "PipelineScheduleMulti" : "Interleaved1F1B";
    case ScheduleKind::zb_h1:
      return candidate.group > 0 ? "PipelineScheduleMulti" : "InterleavedZeroBubble";
    case ScheduleKind::dualpipe_v:
      return "DualPipeV";
    case ScheduleKind::zb_v:
    case ScheduleKind::v_half:
    case ScheduleKind::v_min:
      break;
  }
  return "ZBVZeroBubble";
}

bool torchtitan_reads_csv(const Candidate& candidate) {
  return candidate.group > 0 || candidate.schedule == ScheduleKind::v_half || candidate.schedule == ScheduleKind::v_min;
}

// The modules of each chunk in depth order: its number of stages and its cuts are else torchtitan's own.
std::string torchtitan_stages(const std::vector<int>& cuts) {
  std::string text = "module_fqns_per_model_part = [\n";
  int layer = 0;
  for (std::size_t chunk = 0; chunk < cuts.size(); ++chunk) {
    std::vector<std::string> modules;
    if (chunk == 0) modules.emplace_back("\"tok_embeddings\"");
    for (; layer < cuts[chunk] / sublayers_per_decoder_layer; ++layer)
      modules.push_back(fmt::format("\"layers.{}\"", layer));
    if (chunk + 1 == cuts.size()) modules.insert(modules.end(), {"\"norm\"", "\"output\""});
    text += fmt::format("  [{}],\n", fmt::join(modules, ", "));
  }
  return text + "]\n";
}

std::string torchtitan_pipeline(const SizeRequest& request, const Candidate& c, const std::string& csv) {
  std::string text = fmt::format("pipeline_parallel_degree = {}\n", c.pp);
  if (c.pp == 1) return text;
  text += fmt::format("pipeline_parallel_microbatch_size = {}\npipeline_parallel_schedule = \"{}\"\n", c.microbatch,
                      torchtitan_class(c));
  if (torchtitan_reads_csv(c)) text += fmt::format("pipeline_parallel_schedule_csv = \"{}\"\n", csv);
  return text + torchtitan_stages(cuts_of(request, c));
}

std::string torchtitan_checkpointing(Recompute recompute) {
  if (recompute != Recompute::selective) return fmt::format("mode = \"{}\"\n", to_string(recompute));
  return "# no mode does what was sized: attention's own products and activation functions run again, the products\n"
         "# with weights are kept; \"selective\" is another choice\n";
}

}  // namespace

std::string torchtitan_obstacle(const SizeRequest& request, const Candidate& c) {
  if (c.pp == 1) return "";
  if (c.schedule == ScheduleKind::zb_h1 && c.vp == 1) {
    return "its class for zb-h1 needs at least 2 stages per rank, this layout has 1";
  }
  const std::vector<int> cuts = cuts_of(request, c);
  for (std::size_t chunk = 0; chunk + 1 < cuts.size(); ++chunk) {
    if (cuts[chunk] % sublayers_per_decoder_layer != 0) {
      return fmt::format("it cuts between decoder layers only, chunk {} ends inside layer {}", chunk,
                         cuts[chunk] / sublayers_per_decoder_layer);
    }
    if (chunk > 0 && cuts[chunk] == cuts[chunk - 1]) {
      return fmt::format("a stage of it holds one module or more, chunk {} of the {} is empty", chunk, cuts.size());
    }
  }
  return "";
}

std::string torchtitan_toml(const SizeRequest& request, const Candidate& c, const std::string& csv) {
  // With one rank microbatches are accumulated.
  const int local = c.pp == 1 ? c.microbatch : c.microbatches * c.microbatch;
  std::string text = fmt::format("[training]\nlocal_batch_size = {}\nglobal_batch_size = {}\nseq_len = {}\n\n", local,
                                 request.global_batch, request.sequence);
  text += "[parallelism]\n" + torchtitan_pipeline(request, c, csv);
  text += fmt::format("tensor_parallel_degree = {}\n", c.degrees.tp);
  if (c.degrees.ep > 1) text += fmt::format("expert_parallel_degree = {}\n", c.degrees.ep);
  text += c.sharding == Sharding::none
              ? fmt::format("data_parallel_replicate_degree = {}\ndata_parallel_shard_degree = 1\n", c.degrees.dp)
              : fmt::format(
                    "data_parallel_replicate_degree = 1\ndata_parallel_shard_degree = {}\n"
                    "fsdp_reshard_after_forward = \"never\"\n",
                    c.degrees.dp);
  return text + "\n[activation_checkpoint]\n" + torchtitan_checkpointing(c.recompute);
}

std::string frameworks_lack(const SizeRequest& request) {
  if (request.block_sublayers == 0) return "";
  return "Neither torchtitan nor Megatron-LM has depth attention or this cache: what they run is the order and the "
         "cuts.";
}

}  // namespace plumb::cli
