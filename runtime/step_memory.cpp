// SPDX-License-Identifier: Apache-2.0
#include "step_memory.hpp"

#include <utility>

#include <fmt/format.h>

#include "plumb/runtime/run_error.hpp"
#include "step_words.hpp"

namespace plumb {

StepMemory::StepMemory(const RankPlan& plan, BlockStore& store)
    : plan_(plan),
      store_(store),
      counts_(plan.counters.size()),
      users_left_(new std::atomic<std::int32_t>[plan.releases.size()]) {}

void StepMemory::reset() {
  counts_.reset();
  for (std::size_t i = 0; i < plan_.releases.size(); ++i) {
    users_left_[i].store(plan_.releases[i].num_users, std::memory_order_relaxed);
  }
}

void StepMemory::take(const PlannedOperand& operand, std::size_t compute) {
  if (!take(operand.slot, operand.content, operand.fills)) [[unlikely]] {
    refuse(compute_action(plan_, compute), operand.slot, operand.content, operand.fills);
  }
}

void StepMemory::take(const PlannedSegment& segment, std::int32_t comm) {
  if (!take(segment.slot, segment.content, segment.fills)) [[unlikely]] {
    refuse(comm_action(plan_, comm), segment.slot, segment.content, segment.fills);
  }
}

void StepMemory::refuse(std::string action, Slot slot, std::uint64_t content, bool fills) const {
  throw SlotError(
      plan_.rank, std::move(action),
      fmt::format("{} slot {} should {} {}, but holds {}", slot.slot_class == SlotClass::value ? "value" : "gradient",
                  +slot.index, fills ? "be free for" : "hold", to_string(SlotContent::unpacked(content)),
                  to_string(store_.content(slot))));
}

void StepMemory::check_complete(std::int32_t counter, std::size_t compute) const {
  const PlannedCounter& planned = plan_.counters[static_cast<std::size_t>(counter)];
  const std::int32_t counted = counts_.get(counter);
  if (counted != planned.expected) [[unlikely]] {
    refuse_sum(compute_action(plan_, compute), planned, counted);
  }
}

void StepMemory::check_complete(std::int32_t counter, std::int32_t comm) const {
  const PlannedCounter& planned = plan_.counters[static_cast<std::size_t>(counter)];
  const std::int32_t counted = counts_.get(counter);
  if (counted != planned.expected) [[unlikely]] {
    refuse_sum(comm_action(plan_, comm), planned, counted);
  }
}

void StepMemory::refuse_sum(std::string action, const PlannedCounter& counter, std::int32_t counted) const {
  throw ContributionError(plan_.rank, std::move(action), counter.block, counter.microbatch, counter.expected, counted);
}

void StepMemory::finish(std::span<const std::int32_t> releases) {
  for (const std::int32_t release : releases) {
    const auto index = static_cast<std::size_t>(release);
    // acquire: the other users' accesses come before the poison; release: ours come before theirs.
    if (users_left_[index].fetch_sub(1, std::memory_order_acq_rel) == 1) store_.release(plan_.releases[index].slot);
  }
}

void StepMemory::check_end() const {
  if (!plan_.program->forward_only) {
    for (std::size_t i = 0; i < plan_.counters.size(); ++i) {
      const std::int32_t counted = counts_.get(static_cast<std::int32_t>(i));
      if (counted != plan_.counters[i].expected) refuse_sum("the end of the step", plan_.counters[i], counted);
    }
  }
  for (const SlotClass slot_class : {SlotClass::value, SlotClass::gradient}) {
    for (std::int32_t i = 0; i < store_.num_slots(slot_class); ++i) {
      if (!store_.holds({slot_class, i}, 0)) refuse("the end of the step", {slot_class, i}, 0, false);
    }
  }
}

}  // namespace plumb
