// SPDX-License-Identifier: Apache-2.0
#include "lower_period.hpp"

namespace plumb {
namespace {

// Appends a changed copy of the last `period` entries, `times` over, each of the one before.
template <class T, class Later>
void extend(std::vector<T>& list, std::size_t mark, std::size_t times, Later&& later) {
  const std::size_t period = list.size() - mark;
  const std::size_t end = list.size() + times * period;
  list.reserve(end);
  while (list.size() < end)
    list.push_back(later(list[list.size() - period]));
}

Range later(Range range, std::size_t by) {
  const auto distance = static_cast<std::uint32_t>(by);
  return {range.begin + distance, range.end + distance};
}

}  // namespace

bool SlotMap::match(std::int32_t before, std::int32_t now) {
  if (before < 0 || now < 0) return before == now;
  const auto a = static_cast<std::size_t>(before);
  const auto b = static_cast<std::size_t>(now);
  if (a >= to_.size() || b >= to_.size()) return false;
  if (to_[a] == unknown && from_[b] == unknown) {
    to_[a] = now;
    from_[b] = before;
  }
  return to_[a] == now;
}

bool SlotMap::complete() {
  for (std::int32_t slot = 0; slot < static_cast<std::int32_t>(to_.size()); ++slot) {
    if (to_[static_cast<std::size_t>(slot)] == unknown && !match(slot, slot)) return false;
  }
  return true;
}

SlotMap SlotMap::power(std::size_t times) const {
  SlotMap result = *this;
  for (std::size_t slot = 0; slot < to_.size(); ++slot) {
    auto image = static_cast<std::int32_t>(slot);
    for (std::size_t i = 0; i < times; ++i)
      image = (*this)(image);
    result.to_[slot] = image;
    result.from_[static_cast<std::size_t>(image)] = static_cast<std::int32_t>(slot);
  }
  return result;
}

Period Period::by(std::size_t times) const {
  const auto n = static_cast<std::int32_t>(times);
  return {n * duration, n * microbatches, n * messages,
          n * computes, n * comms,        {slots[0].power(times), slots[1].power(times)}};
}

Lengths::Lengths(const RankProgram& rank)
    : compute(rank.compute.size()),
      comm(rank.comm.size()),
      order(rank.order.size()),
      waits(rank.waits.size()),
      operands(rank.operands.size()),
      segments(rank.segments.size()),
      releases(rank.releases.size()) {}

void repeat(RankProgram& rank, const Lengths& mark, std::size_t times, const Period& period) {
  const Lengths now(rank);
  const std::size_t waits = now.waits - mark.waits;
  const std::size_t releases = now.releases - mark.releases;
  const auto microbatches = period.microbatches;
  extend(rank.compute, mark.compute, times, [&, operands = now.operands - mark.operands](ComputeStep step) {
    step.compute.microbatch = Microbatch(step.compute.microbatch.value + microbatches);
    step.waits = later(step.waits, waits);
    step.operands = later(step.operands, operands);
    step.releases = later(step.releases, releases);
    return step;
  });
  extend(rank.comm, mark.comm, times, [&, segments = now.segments - mark.segments](CommStep step) {
    step.message = MessageId(step.message.value + period.messages);
    step.waits = later(step.waits, waits);
    step.segments = later(step.segments, segments);
    step.releases = later(step.releases, releases);
    return step;
  });
  extend(rank.order, mark.order, times, [&](StepRef step) {
    const auto index = static_cast<std::int32_t>(step.index);
    return StepRef(step.comm, index + (step.comm ? period.comms : period.computes));
  });
  extend(rank.waits, mark.waits, times, [&](Wait wait) { return period.later(wait); });
  extend(rank.operands, mark.operands, times, [&](Operand operand) {
    const Slot slot = period.later(slot_of(operand));
    return Operand(operand.role, operand.first_touch, static_cast<std::int32_t>(slot.index), operand.block);
  });
  extend(rank.segments, mark.segments, times, [&](Slot slot) { return period.later(slot); });
  extend(rank.releases, mark.releases, times, [&](Release release) {
    return Release{period.later(release.slot), later(release.waits, waits)};
  });
}

}  // namespace plumb
