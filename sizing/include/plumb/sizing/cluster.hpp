// SPDX-License-Identifier: Apache-2.0
//
// cluster.hpp: the machines a model runs on, in the figures that people know: rates per device and direction.
//
// Tiers lie innermost first, as devices are numbered: devices 0..span-1 share the first tier, and so on outwards; two
// devices talk through the innermost tier that has both. It holds no model and no layout: see roofline.hpp for what
// computations cost on it and pipeline_costs.hpp for a pipeline. Units are in the names; GB are 1e9 bytes, GiB 2^30.
// Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plumb/simulator/network_model.hpp"

namespace plumb {

struct Gpu {
  std::string name;
  double bf16_tflops_dense = 0;
  double hbm_GBps = 0;
  double mem_GiB = 0;
  double usable_mem_fraction = 0.9;
  int num_sms = 0;  // multiprocessors, over which the tiles of a product are dealt out in waves; 0: not known
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct Tier {
  std::string name;
  std::int64_t span_gpus = 0;  // a multiple of the tier before; 0: without end, the last tier only
  double GBps_per_dir = 0;     // of one interface, as on the data sheet
  double efficiency = 1;       // what of it long messages reach
  double latency_us = 0;
  int shared_by_gpus = 1;   // devices that use one interface
  bool full_duplex = true;  // false: both directions together have GBps_per_dir
  friend bool operator==(const Tier&, const Tier&) = default;
};

// What sending costs a device beside the wire.
struct PointToPoint {
  std::int64_t eager_limit_bytes = 0;  // up to here a message leaves before its receive is there; 0: never
  double sm_fraction_while_active = 0;
  double sm_fraction_while_waiting = 0;
  double launch_us = 0;
  friend bool operator==(const PointToPoint&, const PointToPoint&) = default;
};

struct Straggler {
  int rank = 0;              // of the pipeline
  double compute_scale = 1;  // 1.1: computes 1.1 times as long
  friend bool operator==(const Straggler&, const Straggler&) = default;
};

struct Cluster {
  std::string name;
  Gpu gpu;
  std::vector<Tier> tiers;
  PointToPoint p2p;
  std::vector<Straggler> stragglers;
  std::optional<int> cores_per_node;  // where the ranks are processes of machines with that many cores
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

// "a100", "h100", "h200", "b200", "gb200-nvl72", "pcie-box", "ethernet-25g"; their figures with sources are in
// docs/clusters.md.
std::vector<std::string_view> cluster_names();
std::optional<Cluster> cluster_preset(std::string_view name);

// The innermost tier that two devices share. Throws InputError when none does: the cluster is too small.
const Tier& tier_between(const Cluster& cluster, std::int64_t gpu, std::int64_t other);

// Throws InputError unless the cluster has `gpus` devices.
void require_room(const Cluster& cluster, std::int64_t gpus);

}  // namespace plumb
