// SPDX-License-Identifier: Apache-2.0
//
// lm_fixture.hpp: trains the same small model in four ways and returns plain numbers, so that tests compare vectors.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/schedule/named.hpp"
#include "train_lm/lm_config.hpp"
#include "train_lm/rank_links.hpp"
#include "train_lm/text.hpp"

namespace plumb::lm::test {

using Values = std::map<std::string, std::vector<double>>;  // by parameter name

// 6 sublayers of width 16, 2 heads, blocks of 4 sublayers (the last is short), microbatches of 2 sequences of 8 tokens.
LmConfig tiny_config(Storage dtype = Storage::fp64, Residual residual = Residual::attnres_block);

Text tiny_text();

struct Case {
  int pp = 1;
  int vp = 1;
  int microbatches = 4;
  Policy policy = Policy::cached;
  std::vector<int> cuts = {};                           // empty: even
  std::optional<ScheduleKind> schedule = std::nullopt;  // 1f1b if V = 1, else interleaved
  std::optional<Placement> placement = std::nullopt;    // the schedule's own
  bool recompute = false;
};

std::shared_ptr<const Program> make_program(const LmConfig& config, const Case& layout, bool forward_only = false);

struct Training {
  int steps = 1;
  double learning_rate = 3e-3;
  bool freeze_depth = false;  // queries and key gains keep their initial values
  bool one_batch = false;     // every step sees the first batch
  // In train_interpreted: this chunk never hears of this microbatch's W.
  std::optional<std::pair<ChunkId, Microbatch>> without_weight = std::nullopt;
};

struct Outcome {
  std::vector<double> losses;
  Values first_gradients;
  Values parameters;                    // after the last step
  std::size_t peak_deferred_bytes = 0;  // of train_interpreted: the largest of any rank
};

Outcome train_reference(const LmConfig& config, int microbatches, const Training& training);
Outcome train_interpreted(const LmConfig& config, const Case& layout, const Training& training);
Outcome train_threads(const LmConfig& config, const Case& layout, const Training& training);
// This rank's part only: losses everywhere, values of its own parameters.
Outcome train_rank(const LmConfig& config, const Case& layout, const Training& training, const RankLinks& links);

// Loss of the first batch in plain torch with these parameters in place of the initial ones, where named.
double reference_loss(const LmConfig& config, int microbatches, const Values& parameters);

// [tokens x vocabulary] logits of one microbatch: in plain torch, or by a forward-only program of the pipeline.
std::vector<double> reference_logits(const LmConfig& config, const std::vector<std::int64_t>& ids);
std::vector<double> pipeline_logits(const LmConfig& config, const Case& layout, const std::vector<std::int64_t>& ids);

// The largest of max |a-b| / max |b| over the parameters; names must be equal.
double largest_difference(const Values& a, const Values& b);

}  // namespace plumb::lm::test
