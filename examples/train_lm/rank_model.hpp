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
#include "plumb/kernels/depth_parameters.hpp"
#include "plumb/runtime/executor.hpp"
#include "plumb/schedule/depth_map.hpp"
#include "plumb/schedule/layout.hpp"
#include "train_lm/depth_report.hpp"
#include "train_lm/layers.hpp"
#include "train_lm/lm_config.hpp"
#include "train_lm/model_ends.hpp"

namespace plumb::lm {

// A parameter of the kernels as torch's optimizer wants it: the same memory, value and gradient.
Parameter as_torch(const DepthParameter& parameter);

struct RankModelOptions {
  bool recompute = false;
  bool depth_reports = false;  // be able to make them; ignored under a standard residual
};

class RankModel {
 public:
  // Throws InputError on an illegal config or one that does not fit the depth map.
  RankModel(const LmConfig& config, const Layout& layout, const DepthMap& depth, RankId rank,
            const RankModelOptions& options);
  ~RankModel();
  RankModel(const RankModel&) = delete;
  RankModel& operator=(const RankModel&) = delete;

  // One entry per chunk of the model, null for those of other ranks.
  const StageTable& stages() const { return stages_; }

  // Every parameter of this rank once, chunks ascending.
  const std::vector<Parameter>& parameters() const { return parameters_; }

  // The batches that the next step reads.
  StepBatches& batches() { return batches_; }

  // Whether the next steps are watched for depth_reports(); starts anew. Off at first.
  void observe_depth(bool on);
  // Of the steps since then. REQUIRES: gradients are still there, and a training step was watched.
  std::vector<DepthReport> depth_reports() const;

  // The head, if this rank has it.
  const LossExit* head() const { return head_.get(); }

 private:
  struct Chunk;

  void add_chunk(const DepthMap& depth, ChunkId id, const RankModelOptions& options);
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
