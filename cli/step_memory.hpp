// SPDX-License-Identifier: Apache-2.0
//
// step_memory.hpp (private): what a device holds during a simulated step, by class, and whether it fits.
//
// Where the layers of --model say it: with --cluster and without --profile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "options.hpp"
#include "plumb/cache/program.hpp"
#include "plumb/schedule/schedule.hpp"
#include "plumb/simulator/memory_classes.hpp"
#include "plumb/simulator/network_model.hpp"
#include "resolve.hpp"

namespace plumb::cli {

bool knows_memory(const Options& options);

// What the devices of each rank hold and what comes and goes with each microbatch. REQUIRES knows_memory().
DeviceBytes device_bytes(const Options& options, const DepthMap& depth, const UnitBytes& bytes);

// The step again with another recomputation, which changes times as well as bytes.
struct RecomputeRow {
  std::string name;
  SimTime step{0};
  std::vector<ClassPeak> ranks;
};

struct StepMemory {
  DeviceBytes device;
  std::vector<ClassPeak> ranks;
  std::vector<RecomputeRow> recomputes;  // none, selective, full; empty where that would take too long
  // Where a device does not hold what it must: which rank, by how much, of what most, and what would fit. Else empty.
  std::string lack;
};

// REQUIRES knows_memory().
StepMemory step_memory(const Options& options, const Schedule& schedule, const Depth& depth, const UnitBytes& bytes,
                       const std::optional<NetworkModel>& network, const Program& program, const Timeline& timeline);

// The rank whose device holds most at once.
std::size_t fullest(const std::vector<ClassPeak>& ranks);

std::string memory_text(const Options& options, const StepMemory& memory);
std::string memory_json(const Options& options, const StepMemory& memory);

}  // namespace plumb::cli
