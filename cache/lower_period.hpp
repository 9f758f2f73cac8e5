// SPDX-License-Identifier: Apache-2.0
//
// lower_period.hpp (private): a rank's program continued by its last period, later microbatches in other slots.
//
// When a rank's lowering stands where it stood one period of the plan ago, only later, the records that follow are
// those of the last period: the same steps of later microbatches, waits for steps that stand as much further on, and
// slots renamed, always in the same way, because a rank takes its slots in turn.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plumb/cache/program.hpp"

namespace plumb {

// Which slot of a class takes over what another did one period ago: one to one.
class SlotMap {
 public:
  explicit SlotMap(std::int32_t num_slots = 0)
      : to_(static_cast<std::size_t>(num_slots), unknown), from_(static_cast<std::size_t>(num_slots), unknown) {}

  // False if either slot has another counterpart, or only one of them is a slot (not negative).
  bool match(std::int32_t before, std::int32_t now);
  // Slots that nobody named stay what they are. False if that is not one to one.
  bool complete();
  std::int32_t operator()(std::int32_t before) const { return to_[static_cast<std::size_t>(before)]; }
  SlotMap power(std::size_t times) const;

 private:
  static constexpr std::int32_t unknown = -1;
  std::vector<std::int32_t> to_;
  std::vector<std::int32_t> from_;
};

// By how much things are later one period on; `by(n)` for n periods.
struct Period {
  std::int64_t duration = 0;
  int microbatches = 0;
  std::int32_t messages = 0;
  std::int32_t computes = 0;  // steps of the rank
  std::int32_t comms = 0;
  std::array<SlotMap, 2> slots;  // by SlotClass

  Period by(std::size_t times) const;
  Wait later(Wait wait) const {
    return {wait.on, static_cast<std::int32_t>(wait.step) + (wait.on == Wait::On::compute ? computes : comms)};
  }
  Slot later(Slot slot) const {
    return {slot.slot_class, slots[static_cast<std::size_t>(slot.slot_class)](static_cast<std::int32_t>(slot.index))};
  }
};

// How long a rank's lists are.
struct Lengths {
  explicit Lengths(const RankProgram& rank);
  std::size_t compute;
  std::size_t comm;
  std::size_t order;
  std::size_t waits;
  std::size_t operands;
  std::size_t segments;
  std::size_t releases;
};

// Appends what was appended since `mark`, `times` over, each time one period later than the time before.
void repeat(RankProgram& rank, const Lengths& mark, std::size_t times, const Period& period);

}  // namespace plumb
