// SPDX-License-Identifier: Apache-2.0
//
// device_work.hpp: what one device does for a sublayer and one microbatch: kernel by kernel, its operations and bytes,
// what it exchanges with the other devices of its stage, and what it keeps for the backward.
//
// Everything follows from the model's widths and the degrees; no machine is in it (see roofline.hpp). Experts are taken
// to be balanced. Sizes in bytes, everything per device and microbatch. Pure; plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "plumb/sizing/model_shape.hpp"
#include "plumb/sizing/residual_design.hpp"
#include "plumb/sizing/weights.hpp"

namespace plumb {

// How one pipeline rank is made of devices. Sequence parallelism goes with tensor parallelism: what is not split by
// heads or channels is split by tokens. Experts are dealt out over `ep` of the tp x dp devices of a stage.
struct Degrees {
  int tp = 1;
  int ep = 1;
  int dp = 1;
  int gpus() const { return tp * dp; }
  friend bool operator==(const Degrees&, const Degrees&) = default;
};

enum class Recompute : std::uint8_t {
  none,       // everything the backward reads is kept
  selective,  // attention's own products and activation functions again
  full        // only the input of each decoder layer is kept, its forward runs again in I
};

// What a microbatch is and how it is computed.
struct Batch {
  int tokens = 4096;      // of one microbatch on one tensor-parallel group
  int sequence = 4096;    // of which this many attend to each other, causally
  int element_bytes = 2;  // of weights and activations; gradients of weights are fp32
  Degrees degrees{};
  Recompute recompute = Recompute::none;
  bool fused_attention = true;  // false: scores go through memory, as before FlashAttention
  int block_sublayers = 0;      // of depth attention; 0: none
  ResidualDesign residual{};    // with depth attention as by default, but without blocks: an ordinary stream
};

enum class KernelClass : std::uint8_t {
  products,         // matrix products with weights
  expert_products,  // many small ones, grouped
  attention,        // softmax attention's own products
  linear_attention,
  elementwise  // norms, residuals, activation functions, routing, loss: bound by memory
};

inline constexpr int product_tile_rows = 256;
inline constexpr int product_tile_columns = 128;

struct Kernel {
  KernelClass kind = KernelClass::elementwise;
  double flops = 0;
  double bytes = 0;
  double tiles = 0;  // of a product's result, product_tile_rows x product_tile_columns each; 0: no product
};

// Bytes of collective operations, in one direction out of a device.
struct Collectives {
  double tensor_bytes = 0;  // gathered and scattered over tp
  int num_tensor = 0;
  double expert_bytes = 0;  // exchanged over ep
  int num_expert = 0;
};

struct DeviceWork {
  std::vector<Kernel> forward;
  std::vector<Kernel> backward_input;  // what is recomputed included
  std::vector<Kernel> backward_weight;
  Collectives forward_collectives;
  Collectives backward_collectives;  // in I
  double activation_bytes = 0;       // kept from F on
};

// Of the two sublayers of decoder layer `layer`, and of the head with its loss. REQUIRES require_divides().
DeviceWork attention_work(const ModelShape& shape, int layer, const Batch& batch);
DeviceWork mlp_work(const ModelShape& shape, int layer, const Batch& batch);
DeviceWork head_work(const ModelShape& shape, const Batch& batch);

// Parameters that one device of the stage holds of such a list.
double device_parameters(const std::vector<Weight>& weights, const Degrees& degrees);

// Throws InputError naming the degree, what it must divide, and the nearest that does.
void require_divides(const ModelShape& shape, const Batch& batch);

}  // namespace plumb
