// SPDX-License-Identifier: Apache-2.0
//
// train_plan.hpp: everything that all ranks must agree on before they start, worked out from the flags.
//
// A pure function of the flags and, with --load, of the checkpoint's manifest: every rank computes it alone and the
// ranks compare `facts` before the first byte moves. It holds programs, not tensors. Plain data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/runtime/block_store.hpp"
#include "train_lm/lm_config.hpp"
#include "train_lm/manifest.hpp"
#include "train_lm/train_options.hpp"

namespace plumb::lm {

// One routing policy of this run.
struct PolicyPlan {
  Policy policy = Policy::cached;
  std::shared_ptr<const Program> program;
  std::int64_t formula_bytes = 0;    // per step, from the closed expression over the cuts
  std::int64_t simulated_bytes = 0;  // per step, what arrived in a simulation of the program
};

struct TrainPlan {
  LmConfig model;
  std::string description;           // of the depth, for people
  std::vector<PolicyPlan> policies;  // in the order in which they are tried; the chosen one last
  SlotShape shape;
  std::vector<int> cuts;
  bool recompute = false;
  bool check = false;
  bool log = false;  // every rank records what happens in its steps
  int threads = 1;
  std::int64_t steps = 0;
  std::int64_t stats_every = 0;  // steps between two with diagnostics of depth attention; 0: none
  double learning_rate = 0;
  std::string text_path;
  std::string save_folder;
  std::string load_folder;
  std::optional<CheckpointInfo> resumed;

  // (field, value) of every flag that must be the same on all ranks.
  std::vector<std::pair<std::string, std::string>> facts;

  const Program& chosen() const { return *policies.back().program; }
  // The policy under which step `index` of this run is trained: the chosen one, then one step under each other, then
  // the chosen one to the end. So a short run uses what was asked for.
  std::size_t policy_of_step(std::int64_t index) const;
  // Whether the step that makes it `done` of this run has diagnostics: every stats_every-th, and the last.
  bool depth_report_after(std::int64_t done) const {
    return stats_every > 0 && (done % stats_every == 0 || done == steps);
  }
};

// Throws InputError. `readme`: the text of last resort. `started_ranks`: how many processes mpirun started; must be P.
TrainPlan make_train_plan(const TrainOptions& options, const std::string& readme,
                          std::optional<int> started_ranks = std::nullopt);

}  // namespace plumb::lm
