// SPDX-License-Identifier: Apache-2.0
#include "integer_host.hpp"

#include <algorithm>
#include <stdexcept>

#include "support/catch.hpp"

namespace plumb::test {
namespace {

using Tensor = std::vector<double>;

void load(Tensor& to, const ConstView& from) {
  if (from.data == nullptr) throw std::logic_error("a tensor is missing");
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = from.storage == Storage::fp64 ? elements<double>(from)[i] : static_cast<double>(elements<float>(from)[i]);
  }
}

void store(const View& to, const Tensor& from) {
  if (to.data == nullptr) throw std::logic_error("a tensor is missing");
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (to.storage == Storage::fp64) {
      elements<double>(to)[i] = from[i];
    } else {
      elements<float>(to)[i] = static_cast<float>(from[i]);
    }
  }
}

constexpr double exact_in_double = 9007199254740992.0;  // 2^53

}  // namespace

IntegerModel::Gradients expected_for(const Program& program, const IntegerModel& model) {
  IntegerModel::Gradients expected = model.reference(program.layout.microbatches());
  REQUIRE(expected.largest < exact_in_double);
  if (program.forward_only) {
    for (auto& weight : expected.weights)
      weight.assign(weight.size(), 0.0);
    expected.embedding.assign(expected.embedding.size(), 0.0);
  }
  return expected;
}

class IntegerHost::ChunkStage final : public Stage {
 public:
  ChunkStage(const IntegerModel& model, const DepthMap& depth, ChunkId chunk, int microbatches,
             const IntegerHostOptions& options)
      : model_(model),
        range_(depth.sublayers_of(chunk)),
        first_chunk_(chunk.value == 0),
        last_chunk_(chunk.value + 1 == depth.num_chunks()),
        options_(options),
        size_(static_cast<std::size_t>(model.tokens() * model.width())),
        width_(static_cast<std::size_t>(model.width())),
        blocks_(static_cast<std::size_t>(model.num_blocks()) + 2, Tensor(size_)),
        grads_(blocks_),
        x_(static_cast<std::size_t>(range_.size()) + 1, Tensor(size_)),
        scratch_(size_),
        stash_(static_cast<std::size_t>(microbatches * range_.size()), Stashed{Tensor(size_), Tensor(size_)}),
        awaits_weight_(static_cast<std::size_t>(microbatches), false),
        weights(static_cast<std::size_t>(range_.size()), Tensor(width_)),
        embedding(width_),
        losses(static_cast<std::size_t>(microbatches)) {}

  void forward(const StageForward& args) override {
    if (model_.standard()) {
      forward_standard(args);
      return;
    }
    for (const BlockValue& source : args.sources)
      load(block(source.block.value), source.value);
    if (first_chunk_) embed(args.microbatch, block(0));
    run_forward(args.partial_in);
    for (const BlockOutput& output : args.closed)
      store(output.value, block(output.block.value));
    if (args.partial_out.data != nullptr) store(args.partial_out, block(open_block()));
    if (last_chunk_) {
      for (int n = 0; n <= model_.num_blocks(); ++n)
        add_loss(args.microbatch, n, block(n));
    }
  }

  void backward(const StageBackward& args) override {
    backward_input(args);
    backward_weight(args.microbatch);
  }

  void backward_input(const StageBackward& args) override {
    if (awaits_weight_[args.microbatch.index()]) throw std::logic_error("a second I before the W");
    awaits_weight_[args.microbatch.index()] = true;
    if (model_.standard()) {
      backward_standard(args);
      return;
    }
    for (Tensor& g : grads_)
      std::fill(g.begin(), g.end(), 0.0);
    for (const BlockValue& source : args.sources)
      load(block(source.block.value), source.value);
    for (const BlockValue& value : args.closed)
      load(block(value.block.value), value.value);
    for (const BlockSum& sum : args.grad_closed) {
      if (!sum.first_touch) load(grad(sum.block.value), sum.sum);
    }
    if (args.grad_partial_out.data != nullptr) load(grad(open_block()), args.grad_partial_out);
    if (last_chunk_) add_loss_gradient(args.microbatch);
    run_backward(args.microbatch, args.partial_in);
    if (first_chunk_) embed_backward(args.microbatch, grad(0));
    for (const BlockSum& sum : args.grad_sources) {
      load_or_zero(scratch_, sum);
      for (std::size_t i = 0; i < size_; ++i)
        scratch_[i] += grad(sum.block.value)[i];
      store(sum.sum, scratch_);
    }
    if (args.grad_partial_in.data != nullptr)
      store(args.grad_partial_in, grad(range_.begin / model_.block_sublayers() + 1));
  }

  // The blocks are gone by now: everything comes from the stash.
  void backward_weight(Microbatch m) override {
    if (!awaits_weight_[m.index()]) throw std::logic_error("a W without its I");
    awaits_weight_[m.index()] = false;
    for (std::size_t k = 0; k < weights.size(); ++k) {
      const Stashed& own = stashed(m, k);
      for (std::size_t i = 0; i < size_; ++i) {
        const std::size_t j = i % width_;
        weights[k][j] += own.df[i] * own.x[i - j + (j + 1) % width_];
      }
    }
  }
  std::size_t deferred_bytes() const override {
    const auto waiting = std::count(awaits_weight_.begin(), awaits_weight_.end(), true);
    return static_cast<std::size_t>(waiting) * weights.size() * 2 * size_ * sizeof(double);
  }
  void abandon() noexcept override {
    ++num_abandoned;
    std::fill(awaits_weight_.begin(), awaits_weight_.end(), false);
  }

 private:
  // What a sublayer keeps from I to W.
  struct Stashed {
    Tensor x;   // its input
    Tensor df;  // its output's gradient
  };

  Stashed& stashed(Microbatch m, std::size_t k) { return stash_[m.index() * weights.size() + k]; }
  Tensor& block(int n) { return blocks_[static_cast<std::size_t>(n)]; }
  Tensor& grad(int n) { return grads_[static_cast<std::size_t>(n)]; }
  // The block that is open at the chunk's end; an empty chunk passes on the one it got.
  int open_block() const { return range_.end / model_.block_sublayers() + 1; }

  void load_or_zero(Tensor& to, const BlockSum& sum) {
    if (sum.first_touch) {
      std::fill(to.begin(), to.end(), 0.0);
    } else {
      load(to, sum.sum);
    }
  }

  void embed(Microbatch m, Tensor& to) const {
    for (std::size_t i = 0; i < size_; ++i) {
      const auto j = static_cast<std::int64_t>(i % width_);
      to[i] = model_.embedding(j) * model_.input(m, static_cast<std::int64_t>(i / width_), j);
    }
  }

  void embed_backward(Microbatch m, const Tensor& g) {
    if (options_.frozen_embedding) return;
    for (std::size_t i = 0; i < size_; ++i) {
      const auto j = static_cast<std::int64_t>(i % width_);
      embedding[i % width_] += g[i] * model_.input(m, static_cast<std::int64_t>(i / width_), j);
    }
  }

  void add_loss(Microbatch m, int n, const Tensor& value) {
    for (std::size_t i = 0; i < size_; ++i) {
      losses[m.index()] += model_.loss_weight(m, n, static_cast<std::int64_t>(i % width_)) * value[i];
    }
  }

  void add_loss_gradient(Microbatch m) {
    for (int n = 0; n <= model_.num_blocks(); ++n) {
      for (std::size_t i = 0; i < size_; ++i) {
        grad(n)[i] += model_.loss_weight(m, n, static_cast<std::int64_t>(i % width_));
      }
    }
  }

  // What sublayer l reads, given the partial before it.
  void read(int l, const Tensor& partial, Tensor& h) {
    const int n = l / model_.block_sublayers() + 1;
    const bool first = l % model_.block_sublayers() == 0;
    for (std::size_t i = 0; i < size_; ++i) {
      h[i] = first ? 0 : model_.beta(l) * partial[i];
      for (int k = 0; k < n; ++k)
        h[i] += model_.alpha(l, k) * block(k)[i];
    }
  }

  // x_[k] becomes the input of the chunk's k-th sublayer; blocks_ gets the partials, in the end the closed blocks.
  void run_forward(const ConstView& partial_in) {
    if (partial_in.data != nullptr) load(block(range_.begin / model_.block_sublayers() + 1), partial_in);
    for (int l = range_.begin; l < range_.end; ++l) {
      Tensor& partial = block(l / model_.block_sublayers() + 1);
      if (l % model_.block_sublayers() == 0) std::fill(partial.begin(), partial.end(), 0.0);
      Tensor& h = x_[static_cast<std::size_t>(l - range_.begin)];
      read(l, partial, h);
      for (std::size_t i = 0; i < size_; ++i) {
        const std::size_t j = i % width_;
        partial[i] += model_.weight(l, static_cast<std::int64_t>(j)) * h[i - j + (j + 1) % width_];
      }
    }
  }

  void run_backward(Microbatch m, const ConstView& partial_in) {
    run_forward(partial_in);
    for (int l = range_.end - 1; l >= range_.begin; --l) {
      const int n = l / model_.block_sublayers() + 1;
      const Tensor& df = grad(n);
      std::fill(scratch_.begin(), scratch_.end(), 0.0);
      for (std::size_t i = 0; i < size_; ++i) {
        const std::size_t j = i % width_;
        const std::size_t from = i - j + (j + 1) % width_;
        scratch_[from] += model_.weight(l, static_cast<std::int64_t>(j)) * df[i];
      }
      const auto row = static_cast<std::size_t>(l - range_.begin);
      stashed(m, row).x = x_[row];
      stashed(m, row).df = df;
      for (int k = 0; k < n; ++k) {
        for (std::size_t i = 0; i < size_; ++i)
          grad(k)[i] += model_.alpha(l, k) * scratch_[i];
      }
      if (l % model_.block_sublayers() == 0) continue;
      for (std::size_t i = 0; i < size_; ++i)
        grad(n)[i] += model_.beta(l) * scratch_[i];
    }
  }

  void forward_standard(const StageForward& args) {
    run_standard(args.microbatch, args.partial_in);
    if (args.partial_out.data != nullptr) store(args.partial_out, x_.back());
    if (last_chunk_) add_loss(args.microbatch, 0, x_.back());
  }

  void run_standard(Microbatch m, const ConstView& partial_in) {
    if (first_chunk_) {
      embed(m, x_[0]);
    } else {
      load(x_[0], partial_in);
    }
    for (std::size_t k = 0; k + 1 < x_.size(); ++k) {
      for (std::size_t i = 0; i < size_; ++i) {
        const std::size_t j = i % width_;
        const double w = model_.weight(range_.begin + static_cast<int>(k), static_cast<std::int64_t>(j));
        x_[k + 1][i] = x_[k][i] + w * x_[k][i - j + (j + 1) % width_];
      }
    }
  }

  void backward_standard(const StageBackward& args) {
    run_standard(args.microbatch, args.partial_in);
    Tensor& g = grad(0);
    std::fill(g.begin(), g.end(), 0.0);
    if (args.grad_partial_out.data != nullptr) load(g, args.grad_partial_out);
    if (last_chunk_) {
      for (std::size_t i = 0; i < size_; ++i) {
        g[i] += model_.loss_weight(args.microbatch, 0, static_cast<std::int64_t>(i % width_));
      }
    }
    for (std::size_t k = x_.size() - 1; k-- > 0;) {
      scratch_ = g;
      for (std::size_t i = 0; i < size_; ++i) {
        const std::size_t j = i % width_;
        const std::size_t from = i - j + (j + 1) % width_;
        scratch_[from] += model_.weight(range_.begin + static_cast<int>(k), static_cast<std::int64_t>(j)) * g[i];
      }
      stashed(args.microbatch, k).x = x_[k];
      stashed(args.microbatch, k).df = g;
      std::swap(g, scratch_);
    }
    if (first_chunk_) {
      embed_backward(args.microbatch, g);
    } else {
      store(args.grad_partial_in, g);
    }
  }

  const IntegerModel& model_;
  SublayerRange range_;
  bool first_chunk_;
  bool last_chunk_;
  IntegerHostOptions options_;
  std::size_t size_;
  std::size_t width_;
  std::vector<Tensor> blocks_;  // one more than there are: an empty tail chunk's open block
  std::vector<Tensor> grads_;
  std::vector<Tensor> x_;
  Tensor scratch_;
  std::vector<Stashed> stash_;       // [microbatch][sublayer in chunk]
  std::vector<bool> awaits_weight_;  // [microbatch]

 public:
  std::vector<Tensor> weights;
  Tensor embedding;
  std::vector<double> losses;
  int num_abandoned = 0;
};

IntegerHost::IntegerHost(const IntegerModel& model, const DepthMap& depth, int microbatches, Storage storage,
                         IntegerHostOptions options)
    : model_(model), storage_(storage) {
  for (ChunkId chunk{0}; chunk.value < depth.num_chunks(); chunk = chunk.next()) {
    stages_.push_back(std::make_unique<ChunkStage>(model_, depth, chunk, microbatches, options));
  }
}

IntegerHost::~IntegerHost() = default;

StageTable IntegerHost::stages() const {
  StageTable table;
  for (const auto& stage : stages_)
    table.push_back(stage.get());
  return table;
}

IntegerModel::Gradients IntegerHost::gradients() const {
  IntegerModel::Gradients all;
  all.embedding = stages_.front()->embedding;
  all.losses = stages_.back()->losses;
  for (const auto& stage : stages_)
    all.weights.insert(all.weights.end(), stage->weights.begin(), stage->weights.end());
  return all;
}

void IntegerHost::clear() {
  for (const auto& stage : stages_) {
    for (Tensor& weight : stage->weights)
      std::fill(weight.begin(), weight.end(), 0.0);
    std::fill(stage->embedding.begin(), stage->embedding.end(), 0.0);
    std::fill(stage->losses.begin(), stage->losses.end(), 0.0);
  }
}

const std::vector<std::vector<double>>& IntegerHost::weight_gradients(ChunkId chunk) const {
  return stages_[chunk.index()]->weights;
}

int IntegerHost::num_abandoned() const {
  int sum = 0;
  for (const auto& stage : stages_)
    sum += stage->num_abandoned;
  return sum;
}

}  // namespace plumb::test
