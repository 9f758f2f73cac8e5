// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/memory_classes.hpp"

#include <algorithm>
#include <numeric>

#include "lifetimes.hpp"

namespace plumb {
namespace {

struct ClassChange {
  SimTime at;
  MemoryClass what;
  std::int64_t by;
};

MemoryClass class_of(Occupant what) {
  switch (what) {
    case Occupant::block:
      return MemoryClass::blocks;
    case Occupant::partial:
      return MemoryClass::partials;
    case Occupant::gradient:
      return MemoryClass::block_gradients;
    case Occupant::passing_gradient:
      break;
  }
  return MemoryClass::passing_gradients;
}

std::int64_t bytes_of(Occupant what, const UnitBytes& unit) {
  return what == Occupant::block || what == Occupant::partial ? unit.value : unit.gradient_slot;
}

}  // namespace

std::string_view to_string(MemoryClass memory_class) {
  switch (memory_class) {
    case MemoryClass::weights:
      return "weights";
    case MemoryClass::gradients:
      return "gradients";
    case MemoryClass::optimizer:
      return "optimizer";
    case MemoryClass::workspace:
      return "workspace";
    case MemoryClass::activations:
      return "activations";
    case MemoryClass::blocks:
      return "blocks";
    case MemoryClass::partials:
      return "partials";
    case MemoryClass::block_gradients:
      return "block gradients";
    case MemoryClass::passing_gradients:
      return "passing gradients";
    case MemoryClass::receiving:
      return "receiving";
    case MemoryClass::sending:
      break;
  }
  return "sending";
}

std::int64_t MemoryBytes::total() const { return std::accumulate(bytes_.begin(), bytes_.end(), std::int64_t{0}); }

std::vector<MemoryBytesPoint> memory_by_class(const Program& program, const Timeline& timeline, RankId rank,
                                              const DeviceBytes& device) {
  std::vector<ClassChange> changes;
  const auto hold = [&](SimTime from, SimTime to, MemoryClass what, std::int64_t bytes) {
    if (from >= to) return;
    changes.push_back({from, what, bytes});
    changes.push_back({to, what, -bytes});
  };
  for (const Lifetime& life : slot_lifetimes(program, timeline, rank)) {
    const std::int64_t bytes = bytes_of(life.what, device.unit);
    hold(life.since, life.filled, MemoryClass::receiving, bytes);
    hold(life.filled, life.used, class_of(life.what), bytes);
    hold(life.used, life.end, MemoryClass::sending, bytes);
  }
  if (!device.activations.empty()) {
    for (const ActivationChange& change : activation_changes(program, timeline, rank))
      changes.push_back({change.at, MemoryClass::activations, change.by * device.activations[change.chunk.index()]});
  }
  std::sort(changes.begin(), changes.end(), [](const ClassChange& a, const ClassChange& b) { return a.at < b.at; });
  std::vector<MemoryBytesPoint> curve(1);
  if (!device.always.empty()) curve.front().bytes = device.always[rank.index()];
  MemoryBytes now = curve.front().bytes;
  for (std::size_t i = 0; i < changes.size();) {
    const SimTime at = changes[i].at;
    for (; i < changes.size() && changes[i].at == at; ++i)
      now[changes[i].what] += changes[i].by;
    if (now == curve.back().bytes) continue;
    if (curve.back().at == at) {
      curve.back().bytes = now;
    } else {
      curve.push_back({at, now});
    }
  }
  return curve;
}

ClassPeak class_peak(const std::vector<MemoryBytesPoint>& curve) {
  ClassPeak peak;
  for (const MemoryBytesPoint& point : curve) {
    for (std::size_t c = 0; c < num_memory_classes; ++c) {
      const auto what = static_cast<MemoryClass>(c);
      peak.each[what] = std::max(peak.each[what], point.bytes[what]);
    }
    if (point.bytes.total() > peak.bytes()) {
      peak.at = point.at;
      peak.live = point.bytes;
    }
  }
  return peak;
}

std::vector<ClassPeak> class_peaks(const Program& program, const Timeline& timeline, const DeviceBytes& device) {
  std::vector<ClassPeak> peaks;
  for (std::size_t r = 0; r < program.ranks.size(); ++r)
    peaks.push_back(class_peak(memory_by_class(program, timeline, RankId(r), device)));
  return peaks;
}

}  // namespace plumb
