// SPDX-License-Identifier: Apache-2.0
//
// layer_costs.hpp: how much useful work each sublayer of a real model is, and so how long each chunk takes at one rate.
//
// Real stages are uneven: full attention now and then between linear attention, a dense first layer among experts, and
// a head as heavy as a layer. Counted are the matrix products (2 floating-point operations per weight used and token)
// and the attention's own products over the sequence; a rate turns them into times. It is NOT a roofline: norms,
// routing, depth attention's own reads, and kernels bound by memory are not in it; see roofline.hpp for those. Pure;
// plain values.
#pragma once

#include <span>
#include <vector>

#include "plumb/simulator/cost_model.hpp"
#include "plumb/sizing/model_shape.hpp"

namespace plumb {

struct Work {  // floating-point operations per token
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
};

// One per sublayer, then one for the head. `sequence`: tokens that attend to each other, causally. I repeats the
// products with the weights and twice those within attention; W has those with the weights only. The embedding is a
// look-up and counts nothing.
std::vector<Work> sublayer_work(const ModelShape& shape, int sequence);

// Forward operations of attention's own products per token: a query meets half the sequence on average; linear
// attention meets its state, from which it reads what the key holds, into which it writes the correction, and which the
// query reads.
double core_flops(const ModelShape& shape, int layer, int sequence);

struct Rate {
  int tokens = 4096;       // per microbatch
  int sequence = 4096;     // of which this many belong together
  double teraflops = 400;  // reached, by all devices of one pipeline rank together
};

// One per chunk that ends at each of `cuts` (sublayers, as in DepthMap); the head belongs to the last. Throws
// InputError when the cuts are not the shape's, or for a rate that is not positive.
std::vector<ActionTimes> chunk_times(const ModelShape& shape, std::span<const int> cuts, const Rate& rate);

// Throws InputError unless the cuts ascend and end at the shape's last sublayer.
void require_cuts(const ModelShape& shape, std::span<const int> cuts);

}  // namespace plumb
