// SPDX-License-Identifier: Apache-2.0
#include "plumb/sizing/step_end.hpp"

#include <algorithm>

namespace plumb {
namespace {

constexpr double adam_bytes = 30;  // 4 read and 4 written of master copy and each moment, 4 of the gradient, 2 written

// Devices `stride` apart, in a ring, and the groups of consecutive devices that a tier joins.
struct Members {
  std::int64_t first;
  std::int64_t gpus;
  std::int64_t stride;

  std::int64_t last() const { return first + (gpus - 1) * stride; }

  // Neighbours on the ring, the last and the first too, that lie in different groups of `span`. A hop no longer than
  // that passes at most one boundary.
  std::int64_t hops_between(std::int64_t span) const {
    const std::int64_t boundaries = last() / span - first / span;
    return (stride <= span ? boundaries : gpus - 1) + (boundaries > 0 ? 1 : 0);
  }

  // Fewest of them in one group of `span` that has any. Where groups begin, measured in strides, recurs after `stride`
  // groups, so that no more need a look, and the last.
  std::int64_t fewest_in(std::int64_t span) const {
    if (stride >= span) return 1;
    const std::int64_t begin = first / span;
    const std::int64_t end = last() / span;
    std::int64_t fewest = in_group(end, span);
    for (std::int64_t group = begin; group < std::min(end, begin + stride + 1); ++group)
      fewest = std::min(fewest, in_group(group, span));
    return fewest;
  }

 private:
  std::int64_t in_group(std::int64_t group, std::int64_t span) const {
    return before((group + 1) * span) - before(group * span);
  }
  // How many lie before device `gpu`.
  std::int64_t before(std::int64_t gpu) const {
    return gpu <= first ? 0 : std::min(gpus, (gpu - first + stride - 1) / stride);
  }
};

// A collective over the devices of one rank that hold the same parameters.
struct Ring {
  const Cluster& cluster;
  std::int64_t first;
  std::int64_t gpus;
  std::int64_t stride;
  std::int64_t sharing;

  double seconds(double bytes) const {
    return bytes > 0 ? ring_pass_seconds(cluster, first, gpus, stride, bytes, sharing) : 0;
  }
  // What one device sends in a pass.
  void add_sent(double bytes, double passes, StepEnd& end) const {
    if (gpus <= 1) return;
    const double sent = passes * bytes * static_cast<double>(gpus - 1) / static_cast<double>(gpus);
    end.sent_bytes += sent;
    end.outer_bytes += sent * share_beyond_innermost(cluster, first, gpus, stride);
  }
};

double scale_of(const Cluster& cluster, int rank) {
  for (const Straggler& straggler : cluster.stragglers) {
    if (straggler.rank == rank) return straggler.compute_scale;
  }
  return 1;
}

}  // namespace

double ring_pass_seconds(const Cluster& cluster, std::int64_t first, std::int64_t gpus, std::int64_t stride,
                         double bytes, std::int64_t sharing) {
  if (gpus <= 1) return 0;
  const Members members{first, gpus, stride};
  tier_between(cluster, first, members.last());  // throws
  double slowest = 0;
  double latency = 0;
  std::int64_t group = 1;  // devices of a group of the tier below
  std::int64_t hops_below = 0;
  for (const Tier& tier : cluster.tiers) {
    const std::int64_t span = tier.span_gpus == 0 ? members.last() + 1 : tier.span_gpus;
    const std::int64_t hops = gpus - members.hops_between(span);
    const std::int64_t in_this_tier = hops - hops_below;
    if (in_this_tier > 0) {
      const double rate = tier.GBps_per_dir * 1e9 * tier.efficiency /
                          static_cast<double>(std::min<std::int64_t>(tier.shared_by_gpus, sharing)) /
                          (tier.full_duplex ? 1 : 2);
      slowest = std::max(slowest, bytes / (rate * static_cast<double>(members.fewest_in(group))));
      latency += static_cast<double>(in_this_tier) * tier.latency_us * 1e-6;
    }
    hops_below = hops;
    if (hops == gpus) break;
    group = span;
  }
  const auto count = static_cast<double>(gpus);
  return slowest * (count - 1) / count + latency * (count - 1) / count + cluster.p2p.launch_us * 1e-6;
}

double share_beyond_innermost(const Cluster& cluster, std::int64_t first, std::int64_t gpus, std::int64_t stride) {
  const std::int64_t span = cluster.tiers.empty() ? 0 : cluster.tiers.front().span_gpus;
  if (span == 0 || gpus <= 1) return 0;
  return static_cast<double>(Members{first, gpus, stride}.hops_between(span)) / static_cast<double>(gpus);
}

std::vector<StepEnd> step_ends(std::span<const HeldParameters> parameters, const Layout& layout, const Batch& batch,
                               Sharding sharding, const Cluster& cluster, const Efficiencies& efficiencies) {
  const Degrees& degrees = batch.degrees;
  const std::int64_t stage = degrees.gpus();
  std::vector<StepEnd> ends(static_cast<std::size_t>(layout.pp()));
  for (RankId rank; rank.value < layout.pp(); rank = rank.next()) {
    const std::int64_t first = rank.value * stage;
    const Ring dense{cluster, first, degrees.dp, degrees.tp, stage};
    const Ring experts{cluster, first, stage / degrees.ep, degrees.ep, stage};
    const Ring tensor{cluster, first, degrees.tp, 1, stage};
    StepEnd& end = ends[rank.index()];
    HeldParameters held;
    const auto reduce = [&](const HeldParameters& of, double passes) {
      const double dense_bytes = gradient_bytes * (of.replicated + of.split);
      const double expert_bytes = gradient_bytes * of.experts;
      end.reduce_seconds += passes * (dense.seconds(dense_bytes) + experts.seconds(expert_bytes));
      dense.add_sent(dense_bytes, passes, end);
      experts.add_sent(expert_bytes, passes, end);
    };
    for (const ChunkId chunk : layout.chunks_on(rank)) {
      const HeldParameters& of = parameters[chunk.index()];
      held.replicated += of.replicated;
      held.split += of.split;
      held.experts += of.experts;
      if (sharding == Sharding::gradients) reduce(of, layout.microbatches());
    }
    if (sharding != Sharding::gradients) reduce(held, sharding == Sharding::none ? 2 : 1);
    const double over_tensor = gradient_bytes * held.replicated;
    end.reduce_seconds += 2 * tensor.seconds(over_tensor);
    tensor.add_sent(over_tensor, 2, end);
    double own = held.all();
    if (sharding != Sharding::none) {
      const double dense_bytes = weight_bytes * (held.replicated + held.split);
      const double expert_bytes = weight_bytes * held.experts;
      end.gather_seconds = dense.seconds(dense_bytes) + experts.seconds(expert_bytes);
      dense.add_sent(dense_bytes, 1, end);
      experts.add_sent(expert_bytes, 1, end);
      own = (held.replicated + held.split) / degrees.dp + held.experts / expert_replicas(degrees);
    }
    const double moved = adam_bytes * own + gradient_bytes * held.all();
    end.optimizer_seconds =
        moved / (cluster.gpu.hbm_GBps * 1e9 * efficiencies.elementwise.memory) * scale_of(cluster, rank.value);
  }
  return ends;
}

double seconds(std::span<const StepEnd> ends) {
  double slowest = 0;
  for (const StepEnd& end : ends)
    slowest = std::max(slowest, end.total());
  return slowest;
}

}  // namespace plumb
