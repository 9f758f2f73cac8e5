// SPDX-License-Identifier: Apache-2.0
#include "model_step.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "plumb/cache/lower.hpp"
#include "plumb/runtime/executor.hpp"
#include "plumb/runtime/machine_stage.hpp"
#include "plumb/runtime/standard_stage.hpp"
#include "plumb/schedule/named.hpp"
#include "segments.hpp"
#include "train_lm/adamw.hpp"
#include "train_lm/model_ends.hpp"
#include "train_lm/rank_model.hpp"
#include "train_lm/tape.hpp"

namespace plumb::bench {
namespace {

using namespace plumb::lm;

// Cuts the pass that runs where its layer begins and ends.
class TimedSublayer final : public Sublayer {
 public:
  TimedSublayer(const Layer& layer, Segments*& pass) : layer_(layer), pass_(pass) {}

  void forward(TapeId tape, ConstView h, View f, Keep keep) override {
    pass_->cut();
    layer_.forward(tape, h, f, keep);
    pass_->cut();
  }
  void backward(TapeId tape, ConstView df, View dh) override {
    pass_->cut();
    layer_.backward(tape, df, dh);
    pass_->cut();
  }
  void drop(TapeId tape) override { layer_.drop(tape); }

 private:
  TorchSublayer layer_;
  Segments*& pass_;
};

// Opens and closes the passes of a step.
class Passes final : public StepObserver {
 public:
  void compute_starting(RankId, const Compute& compute) override {
    running = compute.op == Op::forward ? &forward : &backward;
    running->begin();
  }
  void compute_finished(RankId, const Compute&) override { running->cut(); }

  Segments forward;
  Segments backward;
  Segments update;
  Segments* running = nullptr;
};

std::vector<TokenBatch> some_batch(const LmConfig& config) {
  TokenBatch batch;
  for (std::int64_t i = 0; i < config.tokens(); ++i) {
    batch.inputs.push_back(i * i % 251);
    batch.targets.push_back((i + 1) * (i + 1) % 251);
  }
  return {batch};
}

// What both models share.
struct Layers {
  explicit Layers(const LmConfig& config)
      : batches{some_batch(config)}, embedding(config, batches), head(config, batches) {
    const auto take = [this](const std::vector<Parameter>& own) {
      parameters.insert(parameters.end(), own.begin(), own.end());
    };
    take(embedding.parameters());
    for (int i = 0; i < config.num_sublayers; ++i) {
      sublayers.push_back(make_sublayer(config, i));
      take(sublayers.back()->parameters());
    }
    take(head.parameters());
  }

  StepBatches batches;
  EmbeddingEntry embedding;
  LossExit head;
  std::vector<std::unique_ptr<Layer>> sublayers;
  std::vector<Parameter> parameters;
};

class Model {
 public:
  Model(const LmConfig& config, Layers& layers) {
    std::vector<Sublayer*> list;
    for (const auto& layer : layers.sublayers) {
      list.push_back(sublayers_.emplace_back(std::make_unique<TimedSublayer>(*layer, passes_.running)).get());
    }
    std::vector<Parameter> parameters = layers.parameters;
    const SlotShape shape{config.tokens(), config.width, config.dtype};
    if (config.residual == Residual::standard) {
      stage_ =
          std::make_unique<StandardStage>(shape, list, StandardStageOptions{&layers.embedding, &layers.head, false});
    } else {
      const ChunkRange whole{0, config.num_sublayers, true};
      depth_ = std::make_unique<DepthParameters>(depth_config(config), whole);
      depth_->for_each([&](const DepthParameter& parameter) { parameters.push_back(as_torch(parameter)); });
      stage_ = std::make_unique<MachineStage>(depth_config(config), whole, list, *depth_,
                                              MachineStageOptions{&layers.embedding, &layers.head});
    }
    optimizer_ = std::make_unique<AdamW>(parameters, 1e-4);
    const Layout layout(1, 1, 1);
    const DepthMap map(config.num_sublayers, config.block_sublayers, {config.num_sublayers}, config.residual);
    const Policy policy = config.residual == Residual::standard ? Policy::standard : Policy::cached;
    ExecutorOptions options;
    options.observer = &passes_;
    executor_ = std::make_unique<Executor>(RankId(0), StageTable{stage_.get()}, nullptr, nullptr, options);
    program_ =
        executor_->prepare(std::make_shared<const Program>(lower(make_schedule({}, layout), map, policy)), shape);
  }

  void step() {
    executor_->run(program_);
    passes_.update.begin();
    optimizer_->step();
    optimizer_->zero_gradients();
    passes_.update.cut();
  }

  StepTime time() const {
    return {{passes_.forward.odd(), passes_.forward.even()},
            {passes_.backward.odd(), passes_.backward.even()},
            passes_.update.even()};
  }

 private:
  Passes passes_;
  std::vector<std::unique_ptr<TimedSublayer>> sublayers_;
  std::unique_ptr<DepthParameters> depth_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<Executor> executor_;
  ProgramHandle program_;
};

}  // namespace

ModelTimes measure_model(const LmConfig& config, int repetitions) {
  validate(config);
  LmConfig plain = config;
  plain.residual = Residual::standard;
  Layers layers(config);
  Model standard(plain, layers);
  Model depth(config, layers);
  for (int i = 0; i < repetitions; ++i) {
    standard.step();
    depth.step();
  }
  return {standard.time(), depth.time()};
}

}  // namespace plumb::bench
