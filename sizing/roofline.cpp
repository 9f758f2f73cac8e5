// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/roofline.hpp"

#include <algorithm>
#include <cmath>

#include "plumb/sizing/layer_costs.hpp"

namespace plumb {
namespace {

// Calls `visit(chunk, work, weights)` for every sublayer in order, the head last, the embedding with no work first.
template <class Visit>
void each_sublayer(const ModelShape& shape, std::span<const int> cuts, const Batch& batch, const Visit& visit) {
  require_cuts(shape, cuts);
  require_divides(shape, batch);
  const int last = static_cast<int>(cuts.size()) - 1;
  int chunk = 0;
  visit(0, DeviceWork{}, embedding_weights(shape));
  for (int sublayer = 0; sublayer < cuts.back(); ++sublayer) {
    while (cuts[static_cast<std::size_t>(chunk)] <= sublayer)
      ++chunk;
    const int layer = sublayer / 2;
    if (sublayer % 2 == 0) {
      visit(chunk, attention_work(shape, layer, batch), attention_weights(shape, layer));
    } else {
      visit(chunk, mlp_work(shape, layer, batch), mlp_weights(shape, layer));
    }
  }
  visit(last, head_work(shape, batch), head_weights(shape));
}

// One after the other: the rates of the tier that all of `gpus` neighbours share bound a ring, and each of its steps
// pays a latency.
double ring_seconds(const Cluster& cluster, double bytes, int gpus, int count) {
  const Tier& tier = tier_between(cluster, 0, gpus - 1);
  const double rate = tier.GBps_per_dir * 1e9 * tier.efficiency / std::min(tier.shared_by_gpus, gpus);
  return bytes / rate + count * ((gpus - 1) * tier.latency_us + cluster.p2p.launch_us) * 1e-6;
}

// All devices exchange with all: what leaves through each tier goes at that tier's rate, all tiers at once.
double exchange_seconds(const Cluster& cluster, double bytes, int gpus, int count) {
  double longest = 0;
  std::int64_t within = 1;
  for (const Tier& tier : cluster.tiers) {
    const std::int64_t span = tier.span_gpus == 0 ? gpus : std::min<std::int64_t>(tier.span_gpus, gpus);
    if (span > within) {
      const double part = bytes * static_cast<double>(gpus - within) / (gpus - 1);
      const double rate = tier.GBps_per_dir * 1e9 * tier.efficiency / std::min(tier.shared_by_gpus, gpus);
      longest = std::max(longest, part / rate + count * (tier.latency_us + cluster.p2p.launch_us) * 1e-6);
    }
    within = std::max(within, span);
  }
  return longest;
}

// The last wave of a product's tiles leaves multiprocessors idle: by how much longer that makes it. Where that would be
// more than twice, smaller tiles are taken.
double idle_waves(const Kernel& kernel, const Gpu& gpu) {
  if (kernel.tiles <= 0 || gpu.num_sms <= 0) return 1;
  const double waves = kernel.tiles / gpu.num_sms;
  return std::min(2.0, std::ceil(waves) / waves);
}

}  // namespace

const Efficiency& Efficiencies::of(KernelClass kind) const {
  switch (kind) {
    case KernelClass::products:
      return products;
    case KernelClass::expert_products:
      return expert_products;
    case KernelClass::attention:
      return attention;
    case KernelClass::linear_attention:
      return linear_attention;
    case KernelClass::elementwise:
      break;
  }
  return elementwise;
}

double seconds(const Kernel& kernel, const Gpu& gpu, const Efficiencies& efficiencies) {
  const Efficiency& reached = efficiencies.of(kernel.kind);
  const double arithmetic =
      kernel.flops * idle_waves(kernel, gpu) / (gpu.bf16_tflops_dense * 1e12 * reached.arithmetic);
  const double memory = kernel.bytes / (gpu.hbm_GBps * 1e9 * reached.memory);
  return std::max(arithmetic, memory) + efficiencies.kernel_us * 1e-6;
}

double seconds(const Collectives& collectives, const Cluster& cluster, const Degrees& degrees) {
  double sum = 0;
  if (collectives.num_tensor > 0) {
    sum += ring_seconds(cluster, collectives.tensor_bytes, degrees.tp, collectives.num_tensor);
  }
  if (collectives.num_expert > 0) {
    sum += exchange_seconds(cluster, collectives.expert_bytes, degrees.ep, collectives.num_expert);
  }
  return sum;
}

std::vector<SublayerCosts> sublayer_costs(const ModelShape& shape, const Batch& batch, const Cluster& cluster,
                                          const Efficiencies& efficiencies) {
  require_divides(shape, batch);
  const auto of = [&](const std::vector<Kernel>& kernels) {
    double sum = 0;
    for (const Kernel& kernel : kernels)
      sum += seconds(kernel, cluster.gpu, efficiencies);
    return sum;
  };
  std::vector<SublayerCosts> all;
  const auto add = [&](const DeviceWork& work) {
    all.push_back(
        {.forward_seconds = of(work.forward) + seconds(work.forward_collectives, cluster, batch.degrees),
         .backward_input_seconds = of(work.backward_input) + seconds(work.backward_collectives, cluster, batch.degrees),
         .backward_weight_seconds = of(work.backward_weight),
         .activation_bytes = work.activation_bytes,
         .expert_bytes = work.forward_collectives.expert_bytes + work.backward_collectives.expert_bytes,
         .num_expert = work.forward_collectives.num_expert + work.backward_collectives.num_expert});
  };
  for (int layer = 0; layer < static_cast<int>(shape.layers.size()); ++layer) {
    add(attention_work(shape, layer, batch));
    add(mlp_work(shape, layer, batch));
  }
  add(head_work(shape, batch));
  return all;
}

std::vector<ActionTimes> chunk_times(std::span<const SublayerCosts> sublayers, std::span<const int> cuts) {
  std::vector<ActionTimes> times;
  std::size_t sublayer = 0;
  for (std::size_t chunk = 0; chunk < cuts.size(); ++chunk) {
    const bool last = chunk + 1 == cuts.size();
    SublayerCosts sum;
    for (; sublayer < static_cast<std::size_t>(cuts[chunk]) + (last ? 1 : 0); ++sublayer) {
      sum.forward_seconds += sublayers[sublayer].forward_seconds;
      sum.backward_input_seconds += sublayers[sublayer].backward_input_seconds;
      sum.backward_weight_seconds += sublayers[sublayer].backward_weight_seconds;
    }
    times.push_back(action_times(from_us(sum.forward_seconds * 1e6, "the time of F"),
                                 from_us(sum.backward_input_seconds * 1e6, "the time of I"),
                                 from_us(sum.backward_weight_seconds * 1e6, "the time of W")));
  }
  return times;
}

std::vector<ActionTimes> chunk_times(const ModelShape& shape, std::span<const int> cuts, const Batch& batch,
                                     const Cluster& cluster, const Efficiencies& efficiencies) {
  require_cuts(shape, cuts);
  return chunk_times(sublayer_costs(shape, batch, cluster, efficiencies), cuts);
}

std::vector<DeviceMemory> device_memory(const ModelShape& shape, std::span<const int> cuts, const Batch& batch) {
  std::vector<DeviceMemory> memory(cuts.size());
  each_sublayer(shape, cuts, batch, [&](int chunk, const DeviceWork& work, const std::vector<Weight>& weights) {
    DeviceMemory& sum = memory[static_cast<std::size_t>(chunk)];
    sum.activation_bytes += work.activation_bytes;
    sum.parameters += device_parameters(weights, batch.degrees);
  });
  return memory;
}

}  // namespace plumb
