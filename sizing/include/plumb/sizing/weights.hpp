// SPDX-License-Identifier: Apache-2.0
//
// weights.hpp: every tensor of parameters that a sublayer of a real model has: the one list behind parameter counts,
// floating-point operations and bytes.
//
// The counts are exact: they reproduce those of the published checkpoints to the last parameter. How a tensor is
// spread over devices follows the usual practice: what comes in columns per head or channel is split by tensor
// parallelism, low-rank down projections, routers and norms are replicated, whole experts are dealt out by expert
// parallelism. Pure; plain values.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plumb/sizing/model_shape.hpp"

namespace plumb {

enum class Spread : std::uint8_t {
  replicated,
  columns,  // tensor parallelism splits the output
  rows,     // and the input
  experts   // expert parallelism deals out copies
};

// `copies` matrices of in x out, of which a token uses `used`. One that is not multiplied by (norms, biases,
// convolution taps, look-up tables) is `in` = 1.
struct Weight {
  std::string_view name;
  std::int64_t in = 1;
  std::int64_t out = 0;
  bool is_product = false;  // tokens are multiplied by it
  Spread spread = Spread::replicated;
  std::int64_t copies = 1;
  std::int64_t used = 1;

  std::int64_t parameters() const { return in * out * copies; }
  std::int64_t parameters_used() const { return in * out * used; }
};

// The two sublayers of decoder layer `layer` with their norms, and those of depth attention if the model has it.
std::vector<Weight> attention_weights(const ModelShape& shape, int layer);
std::vector<Weight> mlp_weights(const ModelShape& shape, int layer);
// The look-up before the first sublayer; the last norm and the head. A tied head is no weight of its own: `in` x `out`
// with no copies, and it still multiplies.
std::vector<Weight> embedding_weights(const ModelShape& shape);
std::vector<Weight> head_weights(const ModelShape& shape);

struct Parameters {
  std::int64_t all = 0;
  std::int64_t used = 0;  // by one token: of the experts only those it is sent to
  friend bool operator==(const Parameters&, const Parameters&) = default;
};

Parameters count(const std::vector<Weight>& weights);
Parameters parameters(const ModelShape& shape);

}  // namespace plumb
