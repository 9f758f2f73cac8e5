// SPDX-License-Identifier: Apache-2.0
//
// rank_model.hpp: the part of the model that one rank owns: its chunks' layers, their depth parameters, and the Stages.
//
// Under a standard residual the stages add each layer to the stream; else they run the block machine over the layers.
// Which chunk gets what follows from layout and depth map; the parameters' names and initial bits do not depend on
// them. It is NOT a trainer: no optimizer, no communication. Ownership: everything, for as long as it lives; addresses
// never change. Threads: as Stage.
#pragma once

#include <memory>
#include <vector>

#include "plumb/kernels/block_machine.hpp"
#include "plumb/runtime/executor.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/layout.hpp"
#include "train_lm/layers.hpp"
#include "train_lm/lm_config.hpp"
#include "train_lm/model_ends.hpp"

namespace plumb::lm {

class RankModel {
 public:
  // Throws InputError on an illegal config or one that does not fit the depth map.
  RankModel(const LmConfig& config, const Layout& layout, const DepthMap& depth, RankId rank, bool recompute);
  ~RankModel();
  RankModel(const RankModel&) = delete;
  RankModel& operator=(const RankModel&) = delete;

  // One entry per chunk of the model, null for those of other ranks.
  const StageTable& stages() const { return stages_; }

  // Every parameter of this rank once, chunks ascending.
  const std::vector<Parameter>& parameters() const { return parameters_; }

  // The batches that the next step reads.
  StepBatches& batches() { return batches_; }

  // The head, if this rank has it.
  const LossExit* head() const { return head_.get(); }

 private:
  struct Chunk;

  void add_chunk(const DepthMap& depth, ChunkId id, bool recompute);
  void take(const std::vector<Parameter>& parameters);

  LmConfig config_;
  StepBatches batches_;
  std::unique_ptr<EmbeddingEntry> embedding_;
  std::unique_ptr<LossExit> head_;
  std::shared_ptr<DepthWorkspace> workspace_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  StageTable stages_;
  std::vector<Parameter> parameters_;
};

}  // namespace plumb::lm
