// SPDX-License-Identifier: Apache-2.0
#include "train_lm/layers.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "plumb/kernels/counter_rng.hpp"

namespace plumb::lm {

namespace {

Parameter trainable(std::string name, at::Tensor value, bool decay) {
  value.mutable_grad() = at::zeros_like(value);
  value.set_requires_grad(true);
  return {std::move(name), std::move(value), decay};
}

template <class T>
void fill(at::Tensor& tensor, const CounterRng& rng, double stddev) {
  fill_normal(rng, 0.0, stddev, std::span<T>(tensor.data_ptr<T>(), static_cast<std::size_t>(tensor.numel())));
}

Parameter make_matrix(const LmConfig& config, std::string name, std::int64_t rows, std::int64_t columns,
                      double stddev) {
  at::Tensor value = at::empty({rows, columns}, arithmetic_type(config.dtype));
  const CounterRng rng(config.seed, name);
  if (config.dtype == Storage::fp64) {
    fill<double>(value, rng, stddev);
  } else {
    fill<float>(value, rng, stddev);
  }
  return trainable(std::move(name), std::move(value), true);
}

Parameter make_gain(const LmConfig& config, std::string name) {
  return trainable(std::move(name), at::ones({config.width}, arithmetic_type(config.dtype)), false);
}

double fan_in_stddev(std::int64_t fan_in) { return 1.0 / std::sqrt(static_cast<double>(fan_in)); }

at::Tensor rms_norm(const at::Tensor& h, const at::Tensor& gain, double eps) {
  return h * at::rsqrt(h.square().mean(-1, /*keepdim=*/true) + eps) * gain;
}

// Rotary positions: channel pair j of position t turns by t / 10000^(j / pairs). Tables are [sequence, 1, pairs].
struct Rotary {
  at::Tensor cosine;
  at::Tensor sine;

  Rotary(const LmConfig& config, std::int64_t pairs)
      : cosine(at::empty({config.sequence, 1, pairs}, at::kDouble)), sine(at::empty_like(cosine)) {
    double* const cosines = cosine.data_ptr<double>();
    double* const sines = sine.data_ptr<double>();
    for (std::int64_t t = 0; t < config.sequence; ++t) {
      for (std::int64_t j = 0; j < pairs; ++j) {
        const double angle =
            static_cast<double>(t) * std::pow(10000.0, -static_cast<double>(j) / static_cast<double>(pairs));
        cosines[t * pairs + j] = std::cos(angle);
        sines[t * pairs + j] = std::sin(angle);
      }
    }
    cosine = cosine.to(arithmetic_type(config.dtype));
    sine = sine.to(arithmetic_type(config.dtype));
  }

  // x: [sequences, sequence, heads, 2 x pairs]; channel j is paired with channel j + pairs.
  at::Tensor turn(const at::Tensor& x) const {
    const std::int64_t pairs = x.size(-1) / 2;
    const at::Tensor a = x.narrow(-1, 0, pairs);
    const at::Tensor b = x.narrow(-1, pairs, pairs);
    return at::cat({a * cosine - b * sine, a * sine + b * cosine}, -1);
  }
};

class PlainProduct final : public MatrixProduct {
 public:
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& weight) override { return at::linear(x, weight); }
};

class Attention final : public Layer {
 public:
  Attention(const LmConfig& config, const std::string& prefix)
      : sequence_(config.sequence),
        heads_(config.heads),
        eps_(config.eps),
        rotary_(config, config.width / config.heads / 2),
        // -inf above the diagonal: later tokens get weight exactly zero.
        mask_(at::full({config.sequence, config.sequence}, -std::numeric_limits<double>::infinity(),
                       arithmetic_type(config.dtype))
                  .triu(1)) {
    const std::int64_t d = config.width;
    parameters_.push_back(make_gain(config, prefix + ".norm"));
    parameters_.push_back(make_matrix(config, prefix + ".qkv", 3 * d, d, fan_in_stddev(d)));
    parameters_.push_back(make_matrix(config, prefix + ".out", d, d, fan_in_stddev(d)));
  }

  at::Tensor run(const at::Tensor& h, MatrixProduct& product) const override {
    const std::int64_t d = h.size(1);
    const at::Tensor x = rms_norm(h, parameters_[0].value, eps_);
    const at::Tensor qkv =
        product(x, parameters_[1].value).view({h.size(0) / sequence_, sequence_, 3 * heads_, d / heads_});
    const at::Tensor q = rotary_.turn(qkv.narrow(2, 0, heads_)).transpose(1, 2);
    const at::Tensor k = rotary_.turn(qkv.narrow(2, heads_, heads_)).permute({0, 2, 3, 1});
    const at::Tensor v = qkv.narrow(2, 2 * heads_, heads_).transpose(1, 2);
    const double scale = 1.0 / std::sqrt(static_cast<double>(d / heads_));
    const at::Tensor weights = at::softmax(at::matmul(q, k) * scale + mask_, -1);
    return product(at::matmul(weights, v).transpose(1, 2).reshape({h.size(0), d}), parameters_[2].value);
  }

 private:
  std::int64_t sequence_;
  std::int64_t heads_;
  double eps_;
  Rotary rotary_;
  at::Tensor mask_;
};

class Swiglu final : public Layer {
 public:
  Swiglu(const LmConfig& config, const std::string& prefix) : hidden_(config.mlp_width()), eps_(config.eps) {
    const std::int64_t d = config.width;
    parameters_.push_back(make_gain(config, prefix + ".norm"));
    parameters_.push_back(make_matrix(config, prefix + ".gate_up", 2 * hidden_, d, fan_in_stddev(d)));
    parameters_.push_back(make_matrix(config, prefix + ".down", d, hidden_, fan_in_stddev(hidden_)));
  }

  at::Tensor run(const at::Tensor& h, MatrixProduct& product) const override {
    const at::Tensor x = product(rms_norm(h, parameters_[0].value, eps_), parameters_[1].value);
    return product(at::silu(x.narrow(1, 0, hidden_)) * x.narrow(1, hidden_, hidden_), parameters_[2].value);
  }

 private:
  std::int64_t hidden_;
  double eps_;
};

class Embedding final : public Layer {
 public:
  explicit Embedding(const LmConfig& config) {
    parameters_.push_back(make_matrix(config, "embedding.weight", kVocabulary, config.width, 1.0));
  }
  at::Tensor run(const at::Tensor& ids, MatrixProduct&) const override {
    return at::embedding(parameters_[0].value, ids);
  }
};

class Head final : public Layer {
 public:
  explicit Head(const LmConfig& config) : eps_(config.eps) {
    parameters_.push_back(make_gain(config, "head.norm"));
    parameters_.push_back(
        make_matrix(config, "head.weight", kVocabulary, config.width, 0.5 * fan_in_stddev(config.width)));
  }
  at::Tensor run(const at::Tensor& h, MatrixProduct& product) const override {
    return product(rms_norm(h, parameters_[0].value, eps_), parameters_[1].value);
  }

 private:
  double eps_;
};

}  // namespace

at::Tensor Layer::run(const at::Tensor& h) const {
  PlainProduct product;
  return run(h, product);
}

std::unique_ptr<Layer> make_sublayer(const LmConfig& config, int index) {
  const std::string prefix = fmt::format("sublayer.{}", index);
  if (index % 2 == 0) {
    return std::make_unique<Attention>(config, prefix);
  }
  return std::make_unique<Swiglu>(config, prefix);
}

std::unique_ptr<Layer> make_embedding(const LmConfig& config) { return std::make_unique<Embedding>(config); }

std::unique_ptr<Layer> make_head(const LmConfig& config) { return std::make_unique<Head>(config); }

at::Tensor mean_loss(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits, targets);
}

at::ScalarType scalar_type(Storage dtype) {
  switch (dtype) {
    case Storage::fp64:
      return at::kDouble;
    case Storage::bf16:
      return at::kBFloat16;
    case Storage::fp16:
      return at::kHalf;
    case Storage::fp32:
      break;
  }
  return at::kFloat;
}

at::Tensor token_tensor(const std::vector<std::int64_t>& ids) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(ids.size())}, at::kLong);
  std::copy(ids.begin(), ids.end(), tensor.data_ptr<std::int64_t>());
  return tensor;
}

}  // namespace plumb::lm
