// SPDX-License-Identifier: Apache-2.0
#include "train_lm/rank_model.hpp"

#include <utility>

#include <ATen/ops/from_blob.h>

#include "plumb/runtime/machine_stage.hpp"
#include "plumb/runtime/standard_stage.hpp"
#include "plumb/schedule/error.hpp"
#include "train_lm/tape.hpp"

namespace plumb::lm {

Parameter as_torch(const DepthParameter& parameter) {
  const auto tensor = [](const View& view) {
    return at::from_blob(view.data, {view.tokens, view.width}, scalar_type(view.storage));
  };
  Parameter wrapped{parameter.name, tensor(parameter.value), false};
  wrapped.value.mutable_grad() = tensor(parameter.gradient);
  wrapped.value.set_requires_grad(true);
  return wrapped;
}

struct RankModel::Chunk {
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<std::unique_ptr<TorchSublayer>> sublayers;
  std::unique_ptr<DepthParameters> depth;  // none under a standard residual
  std::unique_ptr<DepthStatistics> statistics;
  std::unique_ptr<Stage> stage;
};

RankModel::RankModel(const LmConfig& config, const Layout& layout, const DepthMap& depth, RankId rank,
                     const RankModelOptions& options)
    : config_(config),
      workspace_(make_depth_workspace()),
      stages_(static_cast<std::size_t>(depth.num_chunks()), nullptr) {
  validate(config);
  if (depth.sublayers() != config.num_sublayers || depth.residual() != config.residual ||
      (config.residual != Residual::standard && depth.block_sublayers() != config.block_sublayers)) {
    throw InputError("the depth map is of another model: sublayers, residual or sublayers per block differ");
  }
  for (const ChunkId id : layout.chunks_on(rank)) {
    add_chunk(depth, id, options);
  }
}

RankModel::~RankModel() = default;

void RankModel::observe_depth(bool on) {
  for (const auto& chunk : chunks_) {
    if (chunk->statistics) {
      chunk->statistics->set_active(on);
      chunk->statistics->clear();
    }
  }
}

std::vector<DepthReport> RankModel::depth_reports() const {
  std::vector<DepthReport> all;
  for (const auto& chunk : chunks_) {
    if (chunk->statistics) {
      const std::vector<DepthReport> own = reports_of(*chunk->statistics, *chunk->depth);
      all.insert(all.end(), own.begin(), own.end());
    }
  }
  return all;
}

void RankModel::take(const std::vector<Parameter>& parameters) {
  parameters_.insert(parameters_.end(), parameters.begin(), parameters.end());
}

void RankModel::add_chunk(const DepthMap& depth, ChunkId id, const RankModelOptions& options) {
  auto chunk = std::make_unique<Chunk>();
  const bool first = id.value == 0;
  const bool last = id.value + 1 == depth.num_chunks();
  if (first) {
    embedding_ = std::make_unique<EmbeddingEntry>(config_, batches_);
    take(embedding_->parameters());
  }
  const SublayerRange range = depth.sublayers_of(id);
  std::vector<Sublayer*> sublayers;
  for (int index = range.begin; index < range.end; ++index) {
    const Layer& layer = *chunk->layers.emplace_back(make_sublayer(config_, index));
    sublayers.push_back(chunk->sublayers.emplace_back(std::make_unique<TorchSublayer>(layer)).get());
    take(layer.parameters());
  }
  if (last) {
    head_ = std::make_unique<LossExit>(config_, batches_);
    take(head_->parameters());
  }
  ModelEntry* const entry = first ? embedding_.get() : nullptr;
  ModelExit* const exit = last ? head_.get() : nullptr;
  if (config_.residual == Residual::standard) {
    const SlotShape shape{config_.tokens(), config_.width, config_.dtype};
    chunk->stage =
        std::make_unique<StandardStage>(shape, sublayers, StandardStageOptions{entry, exit, options.recompute});
  } else {
    const ChunkRange part{range.begin, range.size(), last};
    chunk->depth = std::make_unique<DepthParameters>(depth_config(config_), part);
    chunk->depth->for_each([this](const DepthParameter& parameter) { parameters_.push_back(as_torch(parameter)); });
    if (options.depth_reports) {
      chunk->statistics = std::make_unique<DepthStatistics>(depth_config(config_), part);
    }
    chunk->stage = std::make_unique<MachineStage>(
        depth_config(config_), part, sublayers, *chunk->depth,
        MachineStageOptions{entry, exit, options.recompute, workspace_, chunk->statistics.get()});
  }
  stages_[id.index()] = chunk->stage.get();
  chunks_.push_back(std::move(chunk));
}

}  // namespace plumb::lm
