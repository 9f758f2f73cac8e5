// SPDX-License-Identifier: Apache-2.0
#include "model_host.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace plumb::test {
namespace {

Row mask_of(Microbatch m, std::int64_t size) {
  return testing::random_rows<double>("mask." + std::to_string(m.value), size);
}

}  // namespace

class ModelHost::Entry final : public ModelEntry {
 public:
  explicit Entry(const ModelOptions& options)
      : size_(options.tokens * options.width),
        table(testing::random_rows<double>("embedding", size_)),
        gradient(testing::zeros<double>(size_)) {}

  void forward(Microbatch m, View b0) override {
    const Row mask = mask_of(m, size_);
    for (std::size_t i = 0; i < table.size(); ++i)
      elements<double>(b0)[i] = table[i] * mask[i];
  }
  void backward(Microbatch m, ConstView grad_b0) override {
    const Row mask = mask_of(m, size_);
    for (std::size_t i = 0; i < table.size(); ++i)
      gradient[i] += elements<double>(grad_b0)[i] * mask[i];
  }

 private:
  std::int64_t size_;

 public:
  Row table;
  Row gradient;
};

class ModelHost::Exit final : public ModelExit {
 public:
  explicit Exit(const ModelOptions& options)
      : slope_(testing::random_rows<double>("slope", options.tokens * options.width)),
        gradient(testing::zeros<double>(options.tokens * options.width)) {}

  void forward(Microbatch m, ConstView h, ForwardMode mode) override {
    double loss = 0;
    const double* value = elements<double>(h);
    for (std::size_t i = 0; i < slope_.size(); ++i)
      loss += slope_[i] * (value[i] + value[i] * value[i] / 2);
    losses[m] = loss;
    if (mode == ForwardMode::train) kept[m] = Row(value, value + slope_.size());
  }
  void backward(Microbatch m, View grad_h) override {
    backward_input(m, grad_h);
    backward_weight(m);
  }
  void backward_input(Microbatch m, View grad_h) override {
    const Row& value = kept.at(m);
    for (std::size_t i = 0; i < slope_.size(); ++i)
      elements<double>(grad_h)[i] = slope_[i] * (1 + value[i]);
    ++num_deferred_;
  }
  void backward_weight(Microbatch m) override {
    const Row& value = kept.at(m);
    for (std::size_t i = 0; i < slope_.size(); ++i)
      gradient[i] += value[i] + value[i] * value[i] / 2;
    kept.erase(m);
    --num_deferred_;
  }
  std::size_t deferred_bytes() const override { return num_deferred_ * slope_.size() * sizeof(double); }
  void abandon() noexcept override {
    kept.clear();
    num_deferred_ = 0;
  }

 private:
  Row slope_;
  std::size_t num_deferred_ = 0;  // of the kept, those that only wait for their W

 public:
  Row gradient;
  std::map<Microbatch, double> losses;
  std::map<Microbatch, Row> kept;
};

namespace {

DepthConfig config_of(const DepthMap& depth, const ModelOptions& options) {
  DepthConfig config;
  config.num_sublayers = depth.sublayers();
  config.block_length = depth.block_sublayers();
  config.mode = depth.block_sublayers() == 1 ? DepthMode::full : DepthMode::block;
  config.width = options.width;
  config.eps = options.eps;
  config.storage = Storage::fp64;
  config.head_aggregate = options.head_aggregate;
  config.query_init = options.query_stddev > 0 ? QueryInit::normal : QueryInit::zero;
  if (options.query_stddev > 0) config.query_stddev = options.query_stddev;
  config.seed = 7;
  return config;
}

}  // namespace

ModelHost::ModelHost(const DepthMap& depth, const ModelOptions& options)
    : depth_(depth),
      options_(options),
      entry_(std::make_unique<Entry>(options)),
      exit_(std::make_unique<Exit>(options)) {
  for (int l = 0; l < depth.sublayers(); ++l) {
    sublayers_.push_back(std::make_unique<testing::TestSublayer<double>>("sublayer." + std::to_string(l), options.width,
                                                                         testing::LayerKind::tanh, 1e-6));
  }
  const bool standard = depth.residual() == Residual::standard;
  for (ChunkId chunk{0}; chunk.value < depth.num_chunks(); chunk = chunk.next()) {
    const SublayerRange range = depth.sublayers_of(chunk);
    const bool last = chunk.value + 1 == depth.num_chunks();
    std::vector<Sublayer*> own;
    for (int l = range.begin; l < range.end; ++l)
      own.push_back(sublayers_[static_cast<std::size_t>(l)].get());
    ModelEntry* const entry = chunk.value == 0 ? entry_.get() : nullptr;
    ModelExit* const exit = last ? exit_.get() : nullptr;
    if (standard) {
      stages_.push_back(std::make_unique<StandardStage>(shape(), std::move(own),
                                                        StandardStageOptions{entry, exit, options.recompute}));
      continue;
    }
    const DepthConfig config = config_of(depth, options);
    const ChunkRange own_range{range.begin, range.size(), last};
    parameters_.push_back(std::make_unique<DepthParameters>(config, own_range));
    stages_.push_back(std::make_unique<MachineStage>(config, own_range, std::move(own), *parameters_.back(),
                                                     MachineStageOptions{entry, exit, options.recompute, nullptr}));
  }
}

ModelHost::~ModelHost() = default;

StageTable ModelHost::stages() const {
  StageTable table;
  for (const auto& stage : stages_)
    table.push_back(stage.get());
  return table;
}

std::map<std::string, Row> ModelHost::gradients() const {
  std::map<std::string, Row> all;
  for (ChunkId chunk{0}; chunk.value < depth_.num_chunks(); chunk = chunk.next())
    all.merge(gradients(chunk));
  return all;
}

std::map<std::string, Row> ModelHost::gradients(ChunkId chunk) const {
  std::map<std::string, Row> own;
  if (chunk.value == 0) own["embedding"] = entry_->gradient;
  if (chunk.value + 1 == depth_.num_chunks()) own["slope"] = exit_->gradient;
  const SublayerRange range = depth_.sublayers_of(chunk);
  for (int l = range.begin; l < range.end; ++l) {
    own["weight." + std::to_string(l)] = sublayers_[static_cast<std::size_t>(l)]->gradient;
  }
  if (parameters_.empty()) return own;
  parameters_[chunk.index()]->for_each([&](const DepthParameter& each) {
    const double* data = elements<double>(each.gradient);
    own[each.name] = Row(data, data + each.gradient.num_elements());
  });
  return own;
}

const std::map<Microbatch, double>& ModelHost::losses() const { return exit_->losses; }

void ModelHost::clear() {
  for (Row* const own : {&entry_->gradient, &exit_->gradient})
    std::fill(own->begin(), own->end(), 0.0);
  for (const auto& sublayer : sublayers_) {
    for (double& value : sublayer->gradient)
      value = 0;
    sublayer->num_forwards = 0;
  }
  for (const auto& own : parameters_)
    own->zero_gradients();
  exit_->losses.clear();
}

std::size_t ModelHost::num_kept() const {
  std::size_t sum = exit_->kept.size();
  for (const auto& sublayer : sublayers_)
    sum += sublayer->num_kept();
  return sum;
}

OneProcess run_in_one_process(const DepthMap& depth, const ModelOptions& options, int microbatches, bool backward) {
  // One chunk: the stage gets plain buffers.
  ModelOptions plain = options;
  plain.recompute = false;
  const DepthMap whole(depth.sublayers(), depth.block_sublayers(), {depth.sublayers()}, depth.residual());
  ModelHost host(whole, plain);
  Stage& stage = *host.stages()[0];
  const auto size = static_cast<std::size_t>(options.tokens * options.width);
  const int num_blocks = whole.num_sources();
  std::vector<Row> values(static_cast<std::size_t>(num_blocks), Row(size));
  std::vector<Row> sums = values;
  const auto view = [&](Row& row) { return View{row.data(), options.tokens, options.width, Storage::fp64}; };
  std::vector<BlockOutput> outputs;
  std::vector<BlockValue> closed;
  std::vector<BlockSum> grads;
  for (int n = 0; n < num_blocks; ++n) {
    const auto index = static_cast<std::size_t>(n);
    outputs.push_back({BlockId(n), view(values[index])});
    closed.push_back({BlockId(n), view(values[index])});
    grads.push_back({BlockId(n), view(sums[index]), true});
  }
  for (Microbatch m{0}; m.value < microbatches; m = m.next()) {
    StageForward forward;
    forward.microbatch = m;
    forward.mode = backward ? ForwardMode::train : ForwardMode::evaluate;
    forward.closed = outputs;
    stage.forward(forward);
    if (!backward) continue;
    StageBackward args;
    args.microbatch = m;
    args.closed = closed;
    args.grad_closed = grads;
    stage.backward(args);
  }
  return {host.gradients(), host.losses()};
}

double largest_difference(const std::map<std::string, Row>& a, const std::map<std::string, Row>& b) {
  double largest = 0;
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  for (const auto& [name, reference] : b) {
    const auto found = a.find(name);
    if (found == a.end() || found->second.size() != reference.size()) return std::numeric_limits<double>::infinity();
    double difference = 0;
    double scale = 0;
    for (std::size_t i = 0; i < reference.size(); ++i) {
      difference = std::max(difference, std::abs(found->second[i] - reference[i]));
      scale = std::max(scale, std::abs(reference[i]));
      if (!std::isfinite(found->second[i])) return std::numeric_limits<double>::infinity();
    }
    if (difference > 0) largest = std::max(largest, difference / scale);
  }
  return largest;
}

}  // namespace plumb::test
