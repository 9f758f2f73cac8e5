// SPDX-License-Identifier: Apache-2.0
//
// candidates.hpp: the ways to lay a model out over a number of devices that `plumb size` chooses among.
//
// A candidate says everything that a simulation needs beside the request: degrees, microbatch, schedule, routing,
// recomputation, sharding and how the model is cut. Left out from the start is what cannot be sensible: tensor
// parallelism beyond the innermost tier, more chunks than decoder layers, more than max_virtual_stages chunks per rank,
// several chunks on a pipeline of one rank. Plain values; pure.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "plumb/cache/policy.hpp"
#include "plumb/schedule/named.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/sizing/cluster.hpp"
#include "plumb/sizing/device_work.hpp"
#include "plumb/sizing/footprint.hpp"
#include "plumb/sizing/model_shape.hpp"

namespace plumb {

inline constexpr int max_virtual_stages = 8;
inline constexpr int max_microbatch_tokens = 32768;  // unless a microbatch is one sequence

// What is settled beforehand; an empty list leaves the choice open.
struct Settled {
  std::vector<int> pp{};
  std::vector<int> vp{};
  std::vector<int> tp{};
  std::vector<int> ep{};
  std::vector<int> dp{};
  std::vector<int> microbatch{};
  std::vector<ScheduleKind> schedules{};
  std::vector<Policy> policies{};
  std::vector<Recompute> recomputes{};
  std::vector<Sharding> shardings{};
};

struct SizeRequest {
  ModelShape shape;
  int block_sublayers = 0;  // of depth attention; 0: an ordinary residual stream
  Cluster cluster;
  int gpus = 1;
  std::int64_t global_batch = 1;  // sequences per step
  int sequence = 4096;            // tokens of one
  double memory_bytes = 0;        // that a device has to use
  GradientWire gradient_wire = GradientWire::fp32;
  Settled settled{};
};

enum class CutRule : std::uint8_t {
  traffic,  // decoder layers as even as possible, then the least traffic: --cuts auto
  time      // the slowest chunk, head included, as fast as can be
};

struct Candidate {
  int pp = 1;
  int vp = 1;
  Degrees degrees{};
  int microbatch = 1;  // sequences
  int microbatches = 1;
  Recompute recompute = Recompute::none;
  CutRule cuts = CutRule::traffic;
  Sharding sharding = Sharding::none;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int group = 0;  // 0: the schedule has none
  Policy policy = Policy::cached;
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

// "pp16 vp2 tp8 ep64 dp8 mb1 x128 interleaved/16 cached none optimizer traffic": the same for equal candidates only.
std::string to_string(const Candidate& candidate);
std::string_view to_string(Recompute recompute);
std::string_view to_string(CutRule rule);

Layout layout_of(const Candidate& candidate);
Batch batch_of(const SizeRequest& request, const Candidate& candidate);

// Those that only bounds tell apart, in the order in which they are enumerated: all of one pipeline, its degrees and
// its microbatches, whatever its schedule, routing and sharding.
struct CandidateFamily {
  Candidate first;              // the fields that all share
  std::vector<CutRule> cuts{};  // and those that differ
  std::vector<Sharding> shardings{};
  std::vector<std::pair<ScheduleKind, int>> schedules{};  // with their group
  std::vector<Policy> policies{};
  std::size_t size() const { return cuts.size() * shardings.size() * schedules.size() * policies.size(); }
  // REQUIRES i < size(). The policies change fastest, then schedules, shardings and cuts.
  Candidate at(std::size_t i) const;
};

// Throws InputError when there is none: what is wrong with the number of devices, the batch or what is settled, and the
// nearest that is legal.
std::vector<CandidateFamily> candidate_families(const SizeRequest& request);

// Ends of the candidate's chunks in sublayers.
std::vector<int> cuts_of(const SizeRequest& request, const Candidate& candidate);

}  // namespace plumb
