// SPDX-License-Identifier: Apache-2.0
//
// models.hpp (tests): cost models in the round numbers of the tests.
#pragma once

#include "cache/support/layouts.hpp"
#include "plumb/simulator/cost_model.hpp"

namespace plumb::test {

inline SimTime us(std::int64_t count) { return SimTime(count * 1'000'000); }

// 2000 bytes a value, as many a gradient on the wire, 4000 in its slot.
inline constexpr UnitBytes storage_bytes{2000, 2000, 4000};

// F = 1000 us, B = 2 F, and a link on which messages cost nothing.
inline CostModel free_links() { return CostModel(action_times(us(1000), us(1000), us(1000)), Link{}, storage_bytes); }

// The same with a latency alone.
inline CostModel latency_only(SimTime latency) {
  return CostModel(action_times(us(1000), us(1000), us(1000)), Link{latency, SimTime(0), SimTime(0)}, storage_bytes);
}

// The same with one value or gradient unit taking this long on a link.
inline CostModel unit_time(SimTime unit) {
  return CostModel(action_times(us(1000), us(1000), us(1000)), Link{SimTime(0), unit, unit}, storage_bytes);
}

// Different times per chunk and operation, zero among them; latency or bandwidth or both or neither; odd picoseconds.
CostModel random_model(Dice& dice, int num_chunks);

}  // namespace plumb::test
