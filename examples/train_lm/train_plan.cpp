// SPDX-License-Identifier: Apache-2.0
#include "train_lm/train_plan.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <unistd.h>

#include "auto.hpp"
#include "plumb/cache/lower.hpp"
#include "plumb/cache/volume.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/simulator/report.hpp"
#include "plumb/simulator/simulate.hpp"
#include "resolve.hpp"
#include "train_lm/text.hpp"

namespace plumb::lm {

namespace {

constexpr double kDefaultLearningRate = 3e-3;
constexpr int kDefaultLayers = 8;
constexpr int kDefaultWidth = 128;
constexpr std::int64_t kDefaultSequence = 64;
constexpr std::int64_t kDefaultSequences = 2;

Storage parse_dtype(const std::string& text) {
  if (const std::optional<Storage> storage = storage_from_name(text)) {
    return *storage;
  }
  throw InputError(fmt::format("--dtype '{}' is unknown, legal are bf16, fp16, fp32 and fp64", text));
}

void require_word(const char* flag, const std::string& value, std::initializer_list<std::string_view> legal) {
  if (std::find(legal.begin(), legal.end(), value) == legal.end()) {
    throw InputError(fmt::format("{} '{}' is unknown, legal: {}", flag, value, fmt::join(legal, ", ")));
  }
}

// The flags of the depth as a checkpoint has it, where the user gave none.
void take_depth_of(const LmConfig& saved, cli::Options& shared) {
  if (!shared.model && !shared.layers && !shared.sublayers) {
    const bool whole_layers = saved.num_sublayers % 2 == 0 && saved.block_sublayers % 2 == 0;
    if (whole_layers) {
      shared.layers = saved.num_sublayers / 2;
      if (saved.residual == Residual::attnres_block && !shared.block_layers) {
        shared.block_layers = saved.block_sublayers / 2;
      }
    } else {
      shared.sublayers = saved.num_sublayers;
      if (saved.residual == Residual::attnres_block && !shared.block) {
        shared.block = saved.block_sublayers;
      }
    }
  }
  if (!shared.residual) {
    shared.residual = std::string(to_string(saved.residual));
  }
  if (!shared.hidden && !shared.model) {
    shared.hidden = static_cast<int>(saved.width);
  }
}

// What a checkpoint fixes must not be asked for differently.
template <class T>
void require_saved(const std::string& folder, const char* field, const T& saved, const T& asked) {
  if (saved != asked) {
    throw InputError(
        fmt::format("checkpoint {}: its {} is {}, the flags say {}; leave that flag out", folder, field, saved, asked));
  }
}

void require_same_model(const std::string& folder, const LmConfig& saved, const LmConfig& asked) {
  require_saved(folder, "residual", to_string(saved.residual), to_string(asked.residual));
  require_saved(folder, "number of sublayers", saved.num_sublayers, asked.num_sublayers);
  if (saved.residual == Residual::attnres_block) {
    require_saved(folder, "number of sublayers per block", saved.block_sublayers, asked.block_sublayers);
  }
  require_saved(folder, "hidden", saved.width, asked.width);
  require_saved(folder, "heads", saved.heads, asked.heads);
  require_saved(folder, "dtype", to_string(saved.dtype), to_string(asked.dtype));
  require_saved(folder, "seed", saved.seed, asked.seed);
}

std::int64_t default_heads(std::int64_t width) {
  std::int64_t heads = std::max<std::int64_t>(1, width / 32);
  while (heads > 1 && width % (2 * heads) != 0) {
    --heads;
  }
  return heads;
}

LmConfig resolve_model(const TrainOptions& options, const DepthMap& depth, int hidden, const CheckpointInfo* saved) {
  LmConfig model;
  if (saved != nullptr) {
    model = saved->model;
  }
  const bool resumed = saved != nullptr;
  model.num_sublayers = depth.sublayers();
  model.residual = depth.residual();
  model.block_sublayers = depth.block_sublayers();
  model.width = hidden;
  model.heads = options.heads.value_or(resumed ? model.heads : default_heads(hidden));
  model.sequence = options.sequence.value_or(resumed ? model.sequence : kDefaultSequence);
  model.dtype = options.dtype ? parse_dtype(*options.dtype) : resumed ? model.dtype : Storage::fp32;
  model.seed = options.seed.value_or(resumed ? model.seed : 0);
  if (model.sequence < 1) {
    throw InputError(fmt::format("--seq {}: must be at least 1", model.sequence));
  }
  if (options.tokens) {
    if (*options.tokens < model.sequence || *options.tokens % model.sequence != 0) {
      throw InputError(fmt::format("--tokens {}: not a multiple of --seq {}; nearest: {}", *options.tokens,
                                   model.sequence,
                                   std::max<std::int64_t>(1, *options.tokens / model.sequence) * model.sequence));
    }
    model.sequences = *options.tokens / model.sequence;
  } else if (!resumed) {
    model.sequences = kDefaultSequences;
  }
  return model;
}

std::int64_t stats_every(const TrainOptions& options, const DepthMap& depth) {
  if (options.stats.empty()) {
    if (options.stats_every) {
      throw InputError("--stats-every is without effect unless --stats names a file");
    }
    return 0;
  }
  if (depth.residual() == Residual::standard) {
    throw InputError("--stats: a standard residual has no depth attention; use --residual attnres-block");
  }
  const std::int64_t every = options.stats_every.value_or(1);
  if (every < 1) {
    throw InputError(fmt::format("--stats-every {}: must be at least 1", every));
  }
  return every;
}

// Parameters with their gradients and two moments must fit into this machine, whose memory all its ranks share.
void require_memory(const LmConfig& model) {
  const auto width = static_cast<double>(model.width);
  const double per_layer = 4 * width * width + 3 * width * static_cast<double>(model.mlp_width());
  const double parameters = per_layer * model.num_sublayers / 2 + 2.0 * kVocabulary * width;
  const double needed = 4 * parameters * static_cast<double>(bytes_per_element(gradient_storage(model.dtype)));
  const double present = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGE_SIZE));
  if (needed > present) {
    throw InputError(
        fmt::format("hidden {} and {} sublayers: parameters, gradients and moments take {:.0f} GiB, this "
                    "machine has {:.0f} GiB; use a smaller --hidden or --layers",
                    model.width, model.num_sublayers, needed / 0x1p30, present / 0x1p30));
  }
}

PolicyPlan plan_policy(const Schedule& schedule, const DepthMap& depth, Policy policy, int post_ahead,
                       const UnitBytes& bytes) {
  LowerOptions lowering;
  lowering.post_ahead = post_ahead;
  auto program = std::make_shared<const Program>(lower(schedule, depth, policy, lowering));
  PolicyPlan plan;
  plan.policy = policy;
  const std::int64_t units = expected_units(schedule.layout, depth, policy) * schedule.layout.microbatches();
  plan.formula_bytes = units * (bytes.value + bytes.gradient_wire);
  // Any times do: bytes do not depend on them.
  const SimTime tick(1);
  const CostModel costs(action_times(tick, tick, tick), Link{}, bytes);
  plan.simulated_bytes = make_report(*program, costs, simulate(*program, costs)).bytes_per_step;
  plan.program = std::move(program);
  return plan;
}

std::vector<Policy> policies_to_try(Policy chosen) {
  std::vector<Policy> policies;
  if (chosen != Policy::standard) {
    for (const Policy policy : {Policy::naive, Policy::relay, Policy::direct, Policy::cached}) {
      if (policy != chosen) {
        policies.push_back(policy);
      }
    }
  }
  policies.push_back(chosen);
  return policies;
}

// One process per rank under mpirun, one thread per rank otherwise; a program holds every action of every rank.
void require_trainable(const Layout& layout, std::optional<int> started_ranks) {
  constexpr int kMaxRanks = 256;
  constexpr std::int64_t kMaxActions = 1 << 18;
  if (started_ranks && *started_ranks != layout.pp()) {
    throw InputError(fmt::format("--pp is {} but {} MPI ranks were started; nearest: --pp {}", layout.pp(),
                                 *started_ranks, *started_ranks));
  }
  if (layout.pp() > kMaxRanks) {
    throw InputError(fmt::format("--pp {}: at most {} ranks can train here", layout.pp(), kMaxRanks));
  }
  const std::int64_t per_microbatch = layout.num_chunks();
  if (per_microbatch * layout.microbatches() > kMaxActions) {
    throw InputError(fmt::format("--microbatches {}: {} chunks leave room for at most {}", layout.microbatches(),
                                 per_microbatch, kMaxActions / per_microbatch));
  }
}

}  // namespace

std::size_t TrainPlan::policy_of_step(std::int64_t index) const {
  const std::size_t chosen = policies.size() - 1;
  const auto step = static_cast<std::size_t>(index);
  return step == 0 || step > chosen ? chosen : step - 1;
}

TrainPlan make_train_plan(const TrainOptions& options, const std::string& readme, std::optional<int> started_ranks) {
  require_word("--recompute", options.recompute, {"none", "full"});
  require_word("--device", options.device, {"cpu"});
  if (options.steps < 1 || options.steps > 100'000'000) {
    throw InputError(fmt::format("--steps {}: must be 1 to 100000000", options.steps));
  }
  if (options.threads < 1 || options.threads > 1024) {
    throw InputError(fmt::format("--threads {}: must be 1 to 1024", options.threads));
  }
  TrainPlan plan;
  plan.load_folder = options.load;
  plan.save_folder = options.save;
  if (!options.load.empty()) {
    plan.resumed = read_checkpoint(options.load);
  }
  const CheckpointInfo* const saved = plan.resumed ? &*plan.resumed : nullptr;

  cli::Options shared = options.shared;
  if (saved != nullptr) {
    take_depth_of(saved->model, shared);
  }
  if (!shared.model && !shared.layers && !shared.sublayers) {
    shared.layers = kDefaultLayers;
  }
  if (!shared.hidden && !shared.model) {
    shared.hidden = kDefaultWidth;
  }
  // The search may choose a placement too, but cuts and ranks are settled for one here.
  if (cli::wants_auto(shared) && !shared.placement) {
    shared.placement = "loop";
  }
  const Layout layout = cli::resolve_layout(shared);
  require_trainable(layout, started_ranks);
  const cli::Depth depth = cli::resolve_depth(shared, layout);
  plan.description = depth.description;
  plan.model = resolve_model(options, depth.map, depth.hidden, saved);
  validate(plan.model);
  require_memory(plan.model);
  if (saved != nullptr) {
    require_same_model(options.load, saved->model, plan.model);
  }
  plan.learning_rate = options.learning_rate.value_or(saved != nullptr ? saved->learning_rate : kDefaultLearningRate);
  if (!(plan.learning_rate >= 0 && plan.learning_rate <= 10)) {
    throw InputError(fmt::format("--lr {}: must lie between 0 and 10", plan.learning_rate));
  }

  shared.tokens = static_cast<int>(plan.model.tokens());
  shared.dtype = std::string(to_string(plan.model.dtype));
  const UnitBytes bytes = cli::resolve_bytes(shared, depth.hidden);
  if (bytes.gradient_wire != bytes.gradient_slot) {
    throw InputError(
        fmt::format("--grad-wire storage: gradients of --dtype {} are sent as they are added up, in fp32; "
                    "use --grad-wire fp32",
                    shared.dtype));
  }
  const Schedule schedule = cli::resolve_schedule(shared, layout);
  for (const Policy policy : policies_to_try(cli::resolve_policy(shared, depth.map))) {
    plan.policies.push_back(plan_policy(schedule, depth.map, policy, shared.post_ahead, bytes));
  }
  plan.shape = {plan.model.tokens(), plan.model.width, plan.model.dtype};
  plan.recompute = options.recompute == "full";
  plan.check = options.check;
  plan.cuts = {depth.map.cuts().begin(), depth.map.cuts().end()};
  plan.log = !options.log.empty() || !options.profile_out.empty();
  plan.threads = options.threads;
  plan.steps = options.steps;
  plan.stats_every = stats_every(options, depth.map);
  plan.text_path = options.text ? *options.text : Text::default_path(readme);

  plan.facts = {{"--pp", fmt::to_string(layout.pp())},
                {"--vp", fmt::to_string(layout.vp())},
                {"--microbatches", fmt::to_string(layout.microbatches())},
                {"--placement", std::string(to_string(layout.placement()))},
                {"--sublayers", fmt::to_string(plan.model.num_sublayers)},
                {"--block", fmt::to_string(plan.model.block_sublayers)},
                {"--cuts", fmt::format("{}", fmt::join(depth.map.cuts(), ","))},
                {"--residual", std::string(to_string(plan.model.residual))},
                {"--hidden", fmt::to_string(plan.model.width)},
                {"--heads", fmt::to_string(plan.model.heads)},
                {"--seq", fmt::to_string(plan.model.sequence)},
                {"--tokens", fmt::to_string(plan.model.tokens())},
                {"--dtype", std::string(to_string(plan.model.dtype))},
                {"--seed", fmt::to_string(plan.model.seed)},
                {"--schedule", schedule.name},
                {"--group", fmt::to_string(shared.group.value_or(0))},
                {"--group-rule", shared.group_rule.value_or("")},
                {"--cache", std::string(to_string(plan.policies.back().policy))},
                {"--post-ahead", fmt::to_string(shared.post_ahead)},
                {"--steps", fmt::to_string(plan.steps)},
                {"--lr", fmt::to_string(plan.learning_rate)},
                {"--recompute", options.recompute},
                {"--check", fmt::to_string(plan.check)},
                {"--load", plan.load_folder},
                {"--save", plan.save_folder},
                {"--log", options.log},
                {"--profile-out", options.profile_out},
                {"--stats", options.stats},
                {"--stats-every", fmt::to_string(plan.stats_every)},
                {"--json", fmt::to_string(shared.json)}};
  return plan;
}

}  // namespace plumb::lm
