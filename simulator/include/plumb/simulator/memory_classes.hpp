// SPDX-License-Identifier: Apache-2.0
//
// memory_classes.hpp: what a device of each rank holds over time, in bytes, by what it is for.
//
// memory.hpp counts units in slots; here they are bytes of one device, beside what is there all the time (weights and
// their like) and the chunks' activations. A received tensor counts as `receiving` from when its slot is given to it
// until it has arrived; one that nobody but a send still needs counts as `sending`. So every byte has one class. Plain
// data; pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "plumb/cache/program.hpp"
#include "plumb/simulator/cost_model.hpp"
#include "plumb/simulator/timeline.hpp"

namespace plumb {

enum class MemoryClass : std::uint8_t {
  weights,
  gradients,
  optimizer,
  workspace,          // while a sublayer runs
  activations,        // kept from F for the backward
  blocks,             // values that the cache keeps
  partials,           // inputs of chunks: open partials, hidden states
  block_gradients,    // accumulators
  passing_gradients,  // of partials; of blocks between arrival and addition
  receiving,
  sending
};
inline constexpr std::size_t num_memory_classes = 11;

std::string_view to_string(MemoryClass memory_class);  // "block gradients"

class MemoryBytes {
 public:
  std::int64_t& operator[](MemoryClass c) { return bytes_[static_cast<std::size_t>(c)]; }
  std::int64_t operator[](MemoryClass c) const { return bytes_[static_cast<std::size_t>(c)]; }
  std::int64_t total() const;
  friend bool operator==(const MemoryBytes&, const MemoryBytes&) = default;

 private:
  std::array<std::int64_t, num_memory_classes> bytes_{};
};

// Of one device.
struct DeviceBytes {
  UnitBytes unit;                         // where tensors are split by tokens over devices: of its part
  std::vector<std::int64_t> activations;  // [chunk] of one microbatch; empty: not counted
  std::vector<MemoryBytes> always;        // [rank] weights, gradients, optimizer, workspace; empty: not counted
};

struct MemoryBytesPoint {
  SimTime at{0};
  MemoryBytes bytes;  // from `at` until the next point
};

// Ascending, one point per instant at which anything changes, from 0 on. O(n log n) in the rank's steps.
std::vector<MemoryBytesPoint> memory_by_class(const Program& program, const Timeline& timeline, RankId rank,
                                              const DeviceBytes& device);

struct ClassPeak {
  SimTime at{0};     // when the most is held, first
  MemoryBytes live;  // what then is
  MemoryBytes each;  // the peak of each class by itself
  std::int64_t bytes() const { return live.total(); }
};

ClassPeak class_peak(const std::vector<MemoryBytesPoint>& curve);

// [rank]
std::vector<ClassPeak> class_peaks(const Program& program, const Timeline& timeline, const DeviceBytes& device);

}  // namespace plumb
