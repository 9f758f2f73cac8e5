// SPDX-License-Identifier: Apache-2.0
//
// cost_model.hpp: how long each computation and each message takes, and how many bytes a unit has.
//
// A unit is one [tokens, d] tensor. A value and the gradient of the same value may have different bytes on the wire,
// and a gradient may be wider in its slot than on the wire. The model answers per chunk and per pair of ranks, so that
// measured profiles and clusters with tiers are other ways to make one, not other interfaces. It is NOT a network: who
// waits for whom is the business of simulate.hpp. Plain value.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plumb/cache/planner.hpp"
#include "plumb/schedule/action.hpp"
#include "plumb/schedule/ids.hpp"
#include "plumb/simulator/sim_time.hpp"

namespace plumb {

// One chunk, one microbatch. The halves of an overlapped pair run one after the other.
struct ActionTimes {
  SimTime forward{0};
  SimTime backward{0};  // B, the full backward
  SimTime backward_input{0};
  SimTime backward_weight{0};
};

// B = I + W.
ActionTimes action_times(SimTime forward, SimTime backward_input, SimTime backward_weight);

struct UnitBytes {
  std::int64_t value = 0;          // a value, in its slot and on the wire
  std::int64_t gradient_wire = 0;  // a gradient on the wire
  std::int64_t gradient_slot = 0;  // a gradient in its slot
};

enum class GradientWire : std::uint8_t {
  storage,  // rounded once to the storage type before it is sent
  fp32      // as accumulated: fp32, or fp64 where the storage is fp64
};

GradientWire parse_gradient_wire(std::string_view text);  // "storage" or "fp32", else InputError

// storage_bytes: bytes of one stored element, 2, 4 or 8. Throws InputError on others, or when a unit would not
// be 1..2^50 bytes.
UnitBytes unit_bytes(std::int64_t tokens, std::int64_t hidden, int storage_bytes, GradientWire wire);

// One direction between two ranks. A message of n units holds both network ends for n times the unit's time and arrives
// `latency` after that. A unit time of 0 means: such messages occupy no link, any number travels at once.
struct Link {
  SimTime latency{0};
  SimTime value_unit{0};
  SimTime gradient_unit{0};
};

// From a rate in 1e9 bytes per second and direction; infinity = occupies nothing. A finite rate gives at least 1 ps per
// unit.
Link link_from_rate(SimTime latency, double gigabytes_per_s, const UnitBytes& bytes);

// From the time of one value; a gradient takes as much longer as it has more bytes.
Link link_from_unit_time(SimTime latency, SimTime value_unit, const UnitBytes& bytes);

// A link for every ordered pair of ranks; few differ, so pairs name one of them.
struct LinkTable {
  int num_ranks = 0;
  std::vector<Link> links;
  std::vector<std::uint8_t> of_pair;  // [from * num_ranks + to] index into links
};

class CostModel {
 public:
  // The same times for every chunk and the same link between every two ranks.
  CostModel(const ActionTimes& times, const Link& link, const UnitBytes& bytes);
  // Times per chunk, in depth order; at least one, else InputError. Both throw it for a time outside 0..max_duration.
  CostModel(std::vector<ActionTimes> times, const Link& link, const UnitBytes& bytes);
  // A link per pair of ranks. InputError also when a pair has none.
  CostModel(std::vector<ActionTimes> times, LinkTable links, const UnitBytes& bytes);

  SimTime time_of(const Compute& compute) const { return time_of(compute.op, compute.chunk); }
  SimTime time_of(Op op, ChunkId chunk) const;
  const Link& link(RankId from, RankId to) const;
  const UnitBytes& bytes() const { return bytes_; }

  // Throws InputError when the model has times for another number of chunks or links for fewer ranks.
  void require_fits(int num_chunks, int num_ranks = 1) const;

  // The same for the planner, in ticks of their own: the ratios are kept. The times of each chunk where they differ,
  // and their averages; of links that differ, the slowest between a rank and the next one. The planner knows B only as
  // I + W; a B given otherwise is shared out between them in proportion.
  PlanCosts plan_costs() const;

 private:
  std::vector<ActionTimes> times_;  // one per chunk, or one for all
  LinkTable links_;                 // of_pair is empty: one link for all
  UnitBytes bytes_;
};

inline PlanCosts plan_costs(const CostModel& model) { return model.plan_costs(); }

}  // namespace plumb
