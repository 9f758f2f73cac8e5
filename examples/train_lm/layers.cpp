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
#include <torch/csrc/autograd/custom_function.h>

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

// h / rms(h) * gain, with its gradient in closed form: a third of the passes over memory that autograd would take.
class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& h, const at::Tensor& gain,
                            double eps) {
    const at::Tensor scale = at::rsqrt(h.square().mean(-1, /*keepdim=*/true).add_(eps));
    const at::Tensor unit = h * scale;
    context->save_for_backward({unit, scale, gain});
    return unit * gain;
  }

  // With u = h / rms: dh = (g gain - u mean(u g gain)) / rms and dgain = sum over tokens of g u.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor& unit = saved[0];
    const at::Tensor along_unit = gradients[0] * unit;
    const at::Tensor mean = at::matmul(along_unit, saved[2]).div_(static_cast<double>(unit.size(-1))).unsqueeze(-1);
    at::Tensor grad_h = (gradients[0] * saved[2]).addcmul_(unit, mean, -1).mul_(saved[1]);
    return {grad_h, along_unit.sum(0), at::Tensor()};
  }
};

at::Tensor rms_norm(const at::Tensor& h, const at::Tensor& gain, double eps) { return RmsNorm::apply(h, gain, eps); }

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
    const auto half = x.split(x.size(-1) / 2, -1);
    const at::Tensor& a = half[0];
    const at::Tensor& b = half[1];
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
    // Split, not narrow: the gradient is then put together once and not added up from padded parts.
    const auto qk_v = qkv.split_with_sizes({2 * heads_, heads_}, 2);
    const auto q_k = rotary_.turn(qk_v[0]).split(heads_, 2);
    const at::Tensor q = q_k[0].transpose(1, 2);
    const at::Tensor k = q_k[1].permute({0, 2, 3, 1});
    const at::Tensor v = qk_v[1].transpose(1, 2);
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
    const auto gate_up = x.split(hidden_, 1);
    return product(at::silu(gate_up[0]) * gate_up[1], parameters_[2].value);
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
