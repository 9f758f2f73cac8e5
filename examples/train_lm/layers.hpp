// SPDX-License-Identifier: Apache-2.0
//
// layers.hpp: the layers of the model in libtorch: embedding, attention, SwiGLU, head. Each excludes the residual
// stream.
//
// Parameters are drawn from a generator keyed by (seed, parameter name), so a layer starts with the same bits wherever
// it lives. A layer is a pure function of its input and its parameters; it keeps nothing between calls. Its products
// with weight matrices go through a MatrixProduct, so that a pipeline may postpone their weight gradients. Plain torch:
// neither the pipeline nor the kernels are known here, and the one-process reference is made of the same layers.
// Tensors: activations [tokens, width], tokens = sequences x sequence, row-major. Threads: calls may not overlap.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "train_lm/lm_config.hpp"

namespace plumb::lm {

// A trainable tensor. `value` requires grad and has a gradient of zeros from the start, so that additions are in place.
struct Parameter {
  std::string name;
  at::Tensor value;
  bool decay = false;  // matrices decay, gains and queries do not
};

// How a layer multiplies with one of its matrices: y = x weight^T, [tokens, in] to [tokens, out]. A tensor that was
// computed enters one product only: matrices with the same input stand as one, side by side (qkv, gate_up).
class MatrixProduct {
 public:
  virtual ~MatrixProduct() = default;
  virtual at::Tensor operator()(const at::Tensor& x, const at::Tensor& weight) = 0;
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual at::Tensor run(const at::Tensor& h, MatrixProduct& product) const = 0;
  // With torch's own product, in torch's own graph.
  at::Tensor run(const at::Tensor& h) const;
  const std::vector<Parameter>& parameters() const { return parameters_; }

 protected:
  std::vector<Parameter> parameters_;
};

// Sublayer `index` of the model: attention where it is even, SwiGLU where it is odd; its RMSNorm included. Names:
// "sublayer.<index>.norm", ".qkv", ".out" or ".gate_up", ".down".
std::unique_ptr<Layer> make_sublayer(const LmConfig& config, int index);

// Token ids [tokens] (int64) to [tokens, width]. Name: "embedding.weight".
std::unique_ptr<Layer> make_embedding(const LmConfig& config);

// [tokens, width] to logits [tokens, vocabulary] behind the final RMSNorm. Names: "head.norm", "head.weight".
std::unique_ptr<Layer> make_head(const LmConfig& config);

// Mean cross entropy of a microbatch over its tokens; a scalar.
at::Tensor mean_loss(const at::Tensor& logits, const at::Tensor& targets);

// Torch's name of a storage format, and of the format in which layers compute and parameters live: fp64 under fp64,
// else fp32.
at::ScalarType scalar_type(Storage dtype);
inline at::ScalarType arithmetic_type(Storage dtype) { return scalar_type(gradient_storage(dtype)); }

// Ids as an int64 tensor of their own.
at::Tensor token_tensor(const std::vector<std::int64_t>& ids);

}  // namespace plumb::lm
