// SPDX-License-Identifier: Apache-2.0
#include "plumb/cache/program.hpp"

namespace plumb {

namespace {

template <class T>
std::span<const T> slice(const std::vector<T>& pool, Range range) {
  return std::span<const T>(pool).subspan(range.begin, range.size());
}

}  // namespace

SlotClass slot_class(Role role) { return role < Role::grad_partial_out ? SlotClass::value : SlotClass::gradient; }

std::span<const Wait> RankProgram::waits_of(Range range) const { return slice(waits, range); }
std::span<const Operand> RankProgram::operands_of(Range range) const { return slice(operands, range); }
std::span<const Slot> RankProgram::segments_of(Range range) const { return slice(segments, range); }
std::span<const Release> RankProgram::releases_of(Range range) const { return slice(releases, range); }

const Transfer& Program::transfer_of(MessageId message) const {
  return routing.transfers[messages[message.index()].transfer.index()];
}

RankId Program::sender(MessageId message) const {
  const Transfer& transfer = transfer_of(message);
  return messages[message.index()].direction == Direction::forward ? transfer.from : transfer.to;
}

RankId Program::receiver(MessageId message) const {
  const Transfer& transfer = transfer_of(message);
  return messages[message.index()].direction == Direction::forward ? transfer.to : transfer.from;
}

int Program::units(MessageId message) const { return transfer_of(message).units(); }

}  // namespace plumb
