// SPDX-License-Identifier: Apache-2.0
//
// roofline.hpp: how long the kernels of a sublayer take on a device of given arithmetic and memory rates, and so how
// long each chunk of a pipeline takes.
//
// A kernel takes what its operations or its bytes take at the share of the peak that its class reaches, whichever is
// longer, and a little more to start. Collective operations of tensor and expert parallelism are part of the sublayer
// and are not hidden. It is NOT a profile: nothing here was fitted to a machine; where you have one, measure
// (profile.hpp). Pure; plain values.
#pragma once

#include <span>
#include <vector>

#include "plumb/simulator/cost_model.hpp"
#include "plumb/sizing/cluster.hpp"
#include "plumb/sizing/device_work.hpp"

namespace plumb {

// Shares of the peaks that kernels of a class reach.
struct Efficiency {
  double arithmetic = 1;
  double memory = 1;
};

// Defaults, with reasons in docs/clusters.md. Products: with all multiprocessors at work, see Gpu::num_sms.
struct Efficiencies {
  Efficiency products{0.77, 0.80};
  Efficiency expert_products{0.60, 0.80};
  Efficiency attention{0.55, 0.80};
  Efficiency linear_attention{0.25, 0.80};
  Efficiency elementwise{0.10, 0.83};
  double kernel_us = 3;  // from one kernel's last work to the next one's first

  const Efficiency& of(KernelClass kind) const;
};

double seconds(const Kernel& kernel, const Gpu& gpu, const Efficiencies& efficiencies);
double seconds(const Collectives& collectives, const Cluster& cluster, const Degrees& degrees);

// What a device does for one sublayer and microbatch, exchanges included.
struct SublayerCosts {
  double forward_seconds = 0;
  double backward_input_seconds = 0;
  double backward_weight_seconds = 0;
  double activation_bytes = 0;
  double expert_bytes = 0;  // sent by it over ep, forward and backward
  int num_expert = 0;
};

// One per sublayer, then one for the head: for those who try many cuts. Throws InputError as below.
std::vector<SublayerCosts> sublayer_costs(const ModelShape& shape, const Batch& batch, const Cluster& cluster,
                                          const Efficiencies& efficiencies = {});

// The same times as below, to the picosecond. REQUIRES cuts of that many sublayers.
std::vector<ActionTimes> chunk_times(std::span<const SublayerCosts> sublayers, std::span<const int> cuts);

// One per chunk that ends at each of `cuts` (sublayers, as in DepthMap); the head belongs to the last. Throws
// InputError when the cuts are not the shape's or the degrees do not divide what they split.
std::vector<ActionTimes> chunk_times(const ModelShape& shape, std::span<const int> cuts, const Batch& batch,
                                     const Cluster& cluster, const Efficiencies& efficiencies = {});

// The same cuts: bytes that one device keeps per chunk and microbatch in flight, and parameters that it holds.
struct DeviceMemory {
  double activation_bytes = 0;
  double parameters = 0;
};
std::vector<DeviceMemory> device_memory(const ModelShape& shape, std::span<const int> cuts, const Batch& batch);

}  // namespace plumb
