// SPDX-License-Identifier: Apache-2.0
//
// Figures of one device and one direction, dense arithmetic. Their sources stand beside them in docs/clusters.md; where
// data sheets print sparse operations or both directions together, halves are taken.
#include "plumb/sizing/cluster.hpp"

namespace plumb {
namespace {

// What NCCL's own graph search takes for a link of that generation, over the number of links, and over the data sheet:
// 20.0 x 12 / 300, 20.6 x 18 / 450, 40.1 x 18 / 900.
constexpr double nvlink3_efficiency = 0.80;
constexpr double nvlink4_efficiency = 0.82;
constexpr double nvlink5_efficiency = 0.80;
constexpr double infiniband_efficiency = 0.90;

Tier nvlink(std::int64_t span, double rate, double efficiency) {
  return {.name = "nvlink", .span_gpus = span, .GBps_per_dir = rate, .efficiency = efficiency, .latency_us = 3.4};
}

Tier infiniband(double rate) {
  return {.name = "infiniband", .GBps_per_dir = rate, .efficiency = infiniband_efficiency, .latency_us = 14};
}

// Sends by kernels: one MiB goes before its receive is there; while they run, a twentieth of the device is theirs.
constexpr PointToPoint nccl{.eager_limit_bytes = 1 << 20,
                            .sm_fraction_while_active = 0.05,
                            .sm_fraction_while_waiting = 0.05,
                            .launch_us = 8.4};

std::vector<Cluster> presets() {
  return {
      {.name = "a100",
       .gpu = {.name = "A100 SXM 80GB", .bf16_tflops_dense = 312, .hbm_GBps = 2039, .mem_GiB = 80, .num_sms = 108},
       .tiers = {nvlink(8, 300, nvlink3_efficiency), infiniband(25)},
       .p2p = nccl,
       .stragglers = {},
       .cores_per_node = {}},
      {.name = "h100",
       .gpu = {.name = "H100 SXM", .bf16_tflops_dense = 989, .hbm_GBps = 3350, .mem_GiB = 80, .num_sms = 132},
       .tiers = {nvlink(8, 450, nvlink4_efficiency), infiniband(50)},
       .p2p = nccl,
       .stragglers = {},
       .cores_per_node = {}},
      {.name = "h200",
       .gpu = {.name = "H200 SXM", .bf16_tflops_dense = 989, .hbm_GBps = 4800, .mem_GiB = 139, .num_sms = 132},
       .tiers = {nvlink(8, 450, nvlink4_efficiency), infiniband(50)},
       .p2p = nccl,
       .stragglers = {},
       .cores_per_node = {}},
      {.name = "b200",
       .gpu = {.name = "B200 SXM", .bf16_tflops_dense = 2250, .hbm_GBps = 7700, .mem_GiB = 180, .num_sms = 148},
       .tiers = {nvlink(8, 900, nvlink5_efficiency), infiniband(50)},
       .p2p = nccl,
       .stragglers = {},
       .cores_per_node = {}},
      {.name = "gb200-nvl72",
       .gpu = {.name = "GB200", .bf16_tflops_dense = 2500, .hbm_GBps = 8000, .mem_GiB = 185, .num_sms = 152},
       .tiers = {nvlink(72, 900, nvlink5_efficiency), infiniband(100)},
       .p2p = nccl,
       .stragglers = {},
       .cores_per_node = {}},
      {.name = "pcie-box",
       .gpu = {.name = "A100 PCIe 80GB", .bf16_tflops_dense = 312, .hbm_GBps = 1935, .mem_GiB = 80, .num_sms = 108},
       .tiers = {{.name = "pcie", .span_gpus = 8, .GBps_per_dir = 32, .efficiency = 0.8, .latency_us = 5},
                 {.name = "infiniband",
                  .GBps_per_dir = 25,
                  .efficiency = infiniband_efficiency,
                  .latency_us = 14,
                  .shared_by_gpus = 8}},
       .p2p = nccl,
       .stragglers = {},
       .cores_per_node = {}},
      {.name = "ethernet-25g",
       .gpu = {.name = "A100 PCIe 80GB", .bf16_tflops_dense = 312, .hbm_GBps = 1935, .mem_GiB = 80, .num_sms = 108},
       .tiers = {{.name = "pcie", .span_gpus = 8, .GBps_per_dir = 32, .efficiency = 0.8, .latency_us = 5},
                 {.name = "ethernet", .GBps_per_dir = 3.125, .efficiency = 0.9, .latency_us = 25, .shared_by_gpus = 8}},
       .p2p = nccl,
       .stragglers = {},
       .cores_per_node = {}},
  };
}

}  // namespace

std::vector<std::string_view> cluster_names() {
  return {"a100", "h100", "h200", "b200", "gb200-nvl72", "pcie-box", "ethernet-25g"};
}

std::optional<Cluster> cluster_preset(std::string_view name) {
  for (Cluster& preset : presets()) {
    if (preset.name == name) return std::move(preset);
  }
  return std::nullopt;
}

}  // namespace plumb
