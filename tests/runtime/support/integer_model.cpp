// SPDX-License-Identifier: Apache-2.0
#include "integer_model.hpp"

#include <algorithm>
#include <cmath>

namespace plumb::test {
namespace {

std::uint32_t mix(std::uint32_t h, std::uint32_t word) {
  h = (h ^ word) * 0x85EBCA6BU;
  h = (h ^ (h >> 13)) * 0xC2B2AE35U;
  return h ^ (h >> 16);
}

using Tensor = std::vector<double>;

}  // namespace

IntegerModel::IntegerModel(const DepthMap& depth, std::int64_t tokens, std::int64_t width, std::uint32_t seed)
    : sublayers_(depth.sublayers()),
      block_(depth.block_sublayers()),
      num_blocks_(depth.num_blocks()),
      standard_(depth.residual() == Residual::standard),
      tokens_(tokens),
      width_(width),
      seed_(seed) {}

double IntegerModel::small(std::uint32_t kind, int a, int b) const {
  const std::uint32_t h =
      mix(mix(mix(mix(0x9E3779B9U, seed_), kind), static_cast<std::uint32_t>(a)), static_cast<std::uint32_t>(b));
  return static_cast<double>(h % 3) - 1;
}

double IntegerModel::input(Microbatch microbatch, std::int64_t token, std::int64_t j) const {
  return small(5, microbatch.value, static_cast<int>(token * width_ + j));
}

double IntegerModel::loss_weight(Microbatch microbatch, int block, std::int64_t j) const {
  return small(6, microbatch.value, static_cast<int>(block * width_ + j));
}

IntegerModel::Gradients IntegerModel::reference(int microbatches) const {
  Gradients gradients;
  gradients.weights.assign(static_cast<std::size_t>(sublayers_), std::vector<double>(static_cast<std::size_t>(width_)));
  gradients.embedding.assign(static_cast<std::size_t>(width_), 0);
  gradients.losses.assign(static_cast<std::size_t>(microbatches), 0);
  for (Microbatch m{0}; m.value < microbatches; m = m.next()) {
    if (standard_) {
      run_standard(m, gradients);
    } else {
      run(m, gradients);
    }
  }
  return gradients;
}

// Everything at once: all h and all blocks are kept.
void IntegerModel::run(Microbatch microbatch, Gradients& gradients) const {
  const auto size = static_cast<std::size_t>(tokens_ * width_);
  const auto width = static_cast<std::size_t>(width_);
  const auto num_sources = static_cast<std::size_t>(num_blocks_) + 1;
  std::vector<Tensor> blocks(num_sources, Tensor(size, 0.0));
  std::vector<Tensor> h(static_cast<std::size_t>(sublayers_), Tensor(size, 0.0));
  for (std::size_t i = 0; i < size; ++i) {
    const auto j = static_cast<std::int64_t>(i % width);
    blocks[0][i] = embedding(j) * input(microbatch, static_cast<std::int64_t>(i / width), j);
  }
  for (int l = 0; l < sublayers_; ++l) {
    const int n = l / block_ + 1;
    Tensor& in = h[static_cast<std::size_t>(l)];
    for (std::size_t i = 0; i < size; ++i) {
      for (int k = 0; k < n; ++k)
        in[i] += alpha(l, k) * blocks[static_cast<std::size_t>(k)][i];
      in[i] += beta(l) * blocks[static_cast<std::size_t>(n)][i];  // still zero at the block's first sublayer
      gradients.largest = std::max(gradients.largest, std::abs(in[i]));
    }
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t j = i % width;
      blocks[static_cast<std::size_t>(n)][i] += weight(l, static_cast<std::int64_t>(j)) * in[i - j + (j + 1) % width];
    }
  }
  std::vector<Tensor> grads(num_sources, Tensor(size, 0.0));
  for (std::size_t n = 0; n < num_sources; ++n) {
    for (std::size_t i = 0; i < size; ++i) {
      const double slope = loss_weight(microbatch, static_cast<int>(n), static_cast<std::int64_t>(i % width));
      gradients.losses[microbatch.index()] += slope * blocks[n][i];
      grads[n][i] = slope;
    }
  }
  for (int l = sublayers_ - 1; l >= 0; --l) {
    const int n = l / block_ + 1;
    const bool first = l % block_ == 0;
    Tensor dh(size, 0.0);
    const Tensor& df = grads[static_cast<std::size_t>(n)];
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t j = i % width;
      const std::size_t from = i - j + (j + 1) % width;
      dh[from] += weight(l, static_cast<std::int64_t>(j)) * df[i];
      gradients.weights[static_cast<std::size_t>(l)][j] += df[i] * h[static_cast<std::size_t>(l)][from];
      gradients.largest =
          std::max({gradients.largest, std::abs(df[i]), std::abs(gradients.weights[static_cast<std::size_t>(l)][j])});
    }
    for (std::size_t i = 0; i < size; ++i) {
      for (int k = 0; k < n; ++k)
        grads[static_cast<std::size_t>(k)][i] += alpha(l, k) * dh[i];
      if (!first) grads[static_cast<std::size_t>(n)][i] += beta(l) * dh[i];
    }
  }
  for (std::size_t i = 0; i < size; ++i) {
    const auto j = static_cast<std::int64_t>(i % width);
    gradients.embedding[i % width] += grads[0][i] * input(microbatch, static_cast<std::int64_t>(i / width), j);
  }
}

void IntegerModel::run_standard(Microbatch microbatch, Gradients& gradients) const {
  const auto size = static_cast<std::size_t>(tokens_ * width_);
  const auto width = static_cast<std::size_t>(width_);
  std::vector<Tensor> x(static_cast<std::size_t>(sublayers_) + 1, Tensor(size, 0.0));
  for (std::size_t i = 0; i < size; ++i) {
    const auto j = static_cast<std::int64_t>(i % width);
    x[0][i] = embedding(j) * input(microbatch, static_cast<std::int64_t>(i / width), j);
  }
  for (std::size_t l = 0; l < static_cast<std::size_t>(sublayers_); ++l) {
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t j = i % width;
      x[l + 1][i] = x[l][i] + weight(static_cast<int>(l), static_cast<std::int64_t>(j)) * x[l][i - j + (j + 1) % width];
      gradients.largest = std::max(gradients.largest, std::abs(x[l + 1][i]));
    }
  }
  Tensor g(size, 0.0);
  for (std::size_t i = 0; i < size; ++i) {
    g[i] = loss_weight(microbatch, 0, static_cast<std::int64_t>(i % width));
    gradients.losses[microbatch.index()] += g[i] * x.back()[i];
  }
  for (std::size_t l = static_cast<std::size_t>(sublayers_); l-- > 0;) {
    Tensor before = g;
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t j = i % width;
      const std::size_t from = i - j + (j + 1) % width;
      before[from] += weight(static_cast<int>(l), static_cast<std::int64_t>(j)) * g[i];
      gradients.weights[l][j] += g[i] * x[l][from];
      gradients.largest = std::max({gradients.largest, std::abs(g[i]), std::abs(gradients.weights[l][j])});
    }
    g = before;
  }
  for (std::size_t i = 0; i < size; ++i) {
    const auto j = static_cast<std::int64_t>(i % width);
    gradients.embedding[i % width] += g[i] * input(microbatch, static_cast<std::int64_t>(i / width), j);
  }
}

}  // namespace plumb::test
