// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/memory.hpp"

#include <algorithm>

#include "lifetimes.hpp"

namespace plumb {
namespace {

using Count = std::int32_t Resident::*;

struct Change {
  SimTime at;
  Count count;
  std::int32_t by;
};

Count count_of(Occupant what) {
  switch (what) {
    case Occupant::block:
      return &Resident::block_units;
    case Occupant::partial:
      return &Resident::partial_units;
    case Occupant::gradient:
      return &Resident::gradient_units;
    case Occupant::passing_gradient:
      break;
  }
  return &Resident::passing_gradient_units;
}

std::vector<Change> all_changes(const Program& program, const Timeline& timeline, RankId rank) {
  std::vector<Change> changes;
  for (const Lifetime& life : slot_lifetimes(program, timeline, rank)) {
    changes.push_back({life.since, count_of(life.what), 1});
    changes.push_back({life.end, count_of(life.what), -1});
  }
  for (const ActivationChange& change : activation_changes(program, timeline, rank))
    changes.push_back({change.at, &Resident::activation_chunks, change.by});
  return changes;
}

}  // namespace

std::vector<MemoryPoint> memory_curve(const Program& program, const Timeline& timeline, RankId rank) {
  std::vector<Change> changes = all_changes(program, timeline, rank);
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.at < b.at; });
  std::vector<MemoryPoint> curve(1);
  Resident now;
  for (std::size_t i = 0; i < changes.size();) {
    const SimTime at = changes[i].at;
    for (; i < changes.size() && changes[i].at == at; ++i) {
      now.*changes[i].count += changes[i].by;
    }
    if (now == curve.back().resident) continue;
    if (curve.back().at == at) {
      curve.back().resident = now;
    } else {
      curve.push_back({at, now});
    }
  }
  return curve;
}

MemoryPeak memory_peak(const std::vector<MemoryPoint>& curve, const UnitBytes& bytes) {
  MemoryPeak peak;
  for (const MemoryPoint& point : curve) {
    for (const Count count : resident_counts) {
      peak.each.*count = std::max(peak.each.*count, point.resident.*count);
    }
    peak.value_slots = std::max(peak.value_slots, point.resident.value_slots());
    peak.gradient_slots = std::max(peak.gradient_slots, point.resident.gradient_slots());
    const std::int64_t live =
        point.resident.value_slots() * bytes.value + point.resident.gradient_slots() * bytes.gradient_slot;
    if (live > peak.bytes) {
      peak.bytes = live;
      peak.at = point.at;
      peak.live = point.resident;
    }
  }
  return peak;
}

}  // namespace plumb
