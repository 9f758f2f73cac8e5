// SPDX-License-Identifier: Apache-2.0
//
// program.hpp: a pipeline step as data. Two interpreters run it: the simulator in virtual time, the executor in real
// time.
//
// Per rank there is a list of compute steps and a list of communication steps. A step names what it waits for and the
// slots it touches; slots are the rank's preallocated [tokens, d] buffers in two classes, values and gradients.
// Messages of one channel (peer, lane, direction of travel) are posted in list order at both ends, so a channel needs
// no tags, counts or ids. Everything derives from one common linear order (lower.hpp), which is why no program made by
// us can deadlock. Plain data; const access from any thread. Indices are into the rank's own vectors.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plumb/cache/routing.hpp"
#include "plumb/schedule/action.hpp"
#include "plumb/schedule/schedule.hpp"

namespace plumb {

enum class Direction : std::uint8_t { forward, backward };

// One transfer for one microbatch. Backward it travels from the transfer's `to` to its `from` and carries gradients.
struct Message {
  TransferId transfer;
  Microbatch microbatch;
  Direction direction = Direction::forward;
  friend bool operator==(const Message&, const Message&) = default;
};

using MessageId = Id<struct MessageTag>;  // index into Program::messages, which is in the common order

// Half-open range into one of the rank's pools.
struct Range {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint32_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// Programs have millions of the small records below, so an index shares its word with the flags before it. One that
// does not fit becomes the largest that does, which no list reaches: verify_program reports it. The word is put
// together in a register, because a field written alone is read back with the next one.
template <int index_bits>
constexpr std::uint32_t packed(std::uint32_t flags, std::int32_t index) {
  static_assert(std::endian::native == std::endian::little, "the first bit-field is taken to be the lowest");
  constexpr std::uint32_t largest = (std::uint32_t{1} << index_bits) - 1;
  return flags | std::min(static_cast<std::uint32_t>(index), largest) << (32 - index_bits);
}
template <class Record>
std::uint32_t bits_of(Record record) {
  return std::bit_cast<std::uint32_t>(record);
}

enum class SlotClass : std::uint8_t { value, gradient };

struct Slot {
  constexpr Slot() = default;
  Slot(SlotClass its_class, std::int32_t its_index)
      : Slot(std::bit_cast<Slot>(packed<31>(static_cast<std::uint32_t>(its_class), its_index))) {}

  SlotClass slot_class : 1 = SlotClass::value;
  std::uint32_t index : 31 = 0;
  friend bool operator==(Slot a, Slot b) { return bits_of(a) == bits_of(b); }
};

// A step may begin when every event it waits for has happened on its own rank.
struct Wait {
  enum class On : std::uint8_t { compute, comm };
  constexpr Wait() = default;
  Wait(On what, std::int32_t index) : Wait(std::bit_cast<Wait>(packed<31>(static_cast<std::uint32_t>(what), index))) {}

  On on : 1 = On::compute;      // step finished: computed; sent, arrived, or added
  std::uint32_t step : 31 = 0;  // index into compute or comm
  friend bool operator==(Wait a, Wait b) { return bits_of(a) == bits_of(b); }
};

// What a computation does with a slot. Values: sources and partial_in are read, closed and partial_out are written by F
// and read (closed) by B and I. Gradients: grad_partial_out is read; grad_closed holds the sum from outside and is
// completed by the chunk's own readers; grad_source is added to; grad_partial_in is written. `first_touch`: the slot
// holds nothing yet and must be overwritten (grad_source), or nothing came from outside (grad_closed).
enum class Role : std::uint8_t {
  source,
  partial_in,
  closed,
  partial_out,
  grad_partial_out,
  grad_closed,
  grad_source,
  grad_partial_in
};

struct Operand {
  constexpr Operand() = default;
  Operand(Role its_role, bool first, std::int32_t its_slot, BlockId its_block)
      : Operand(std::bit_cast<Operand>(
            std::uint64_t{packed<28>(static_cast<std::uint32_t>(its_role) | (first ? 8U : 0U), its_slot)} |
            std::uint64_t{static_cast<std::uint32_t>(its_block.value)} << 32)) {}

  Role role : 3 = Role::source;
  bool first_touch : 1 = false;
  std::uint32_t slot : 28 = 0;  // class follows from the role
  BlockId block{};              // for source, closed, grad_closed, grad_source
  friend bool operator==(const Operand&, const Operand&) = default;
};

constexpr SlotClass slot_class(Role role) {
  return role < Role::grad_partial_out ? SlotClass::value : SlotClass::gradient;
}
inline Slot slot_of(const Operand& operand) { return {slot_class(operand.role), +operand.slot}; }

struct ComputeStep {
  Compute compute;
  bool overlaps_next = false;  // first half of an overlapped pair
  Range waits{};
  Range operands{};  // grouped by role in the order of Role, blocks ascending
  Range releases{};
};

enum class CommKind : std::uint8_t {
  send,     // segments leave in order: the partial first, then blocks ascending
  receive,  // the same segments arrive
  add,      // segments[0] += segments[1], or = when first_touch: an arrived gradient sum joins an accumulator
  zero      // segments[0] = 0: a sum that nothing contributes to is sent as zeros, so that counts match
};

struct CommStep {
  CommKind kind = CommKind::send;
  bool first_touch = false;  // add only
  MessageLane lane = MessageLane::urgent;
  RankId peer{};          // send, receive
  MessageId message{-1};  // send, receive; add: the message that brought the sum; zero: the one that will carry it
  HoldingId holding{-1};  // add: the child holding whose sum arrived; zero: the holding whose sum is zero
  Range waits{};
  Range segments{};
  Range releases{};
};

// A slot whose last user, in the common order, is the step that carries this record. Its other users are in the next
// occupant's waits; a debug build may poison it once all of them have finished.
struct Release {
  Slot slot{};
  Range waits{};
};

// One position of a rank's program: `comm` false = compute[index], true = comm[index].
struct StepRef {
  constexpr StepRef() = default;
  explicit StepRef(Wait wait) : StepRef(wait.on == Wait::On::comm, +wait.step) {}
  StepRef(bool is_comm, std::int32_t its_index)
      : StepRef(std::bit_cast<StepRef>(packed<31>(is_comm ? 1 : 0, its_index))) {}

  bool comm : 1 = false;
  std::uint32_t index : 31 = 0;
  friend bool operator==(StepRef a, StepRef b) { return bits_of(a) == bits_of(b); }
};

struct RankProgram {
  std::vector<ComputeStep> compute;
  std::vector<CommStep>
      comm;  // in the common order; the queue of one channel is the subsequence with its peer, lane and kind
  std::vector<StepRef>
      order;  // all steps of the rank in the common order (receives where the message starts, not hoisted)
  std::vector<Wait> waits;  // pools
  std::vector<Operand> operands;
  std::vector<Slot> segments;
  std::vector<Release> releases;
  std::int32_t num_value_slots = 0;     // peak of live values, known before the step
  std::int32_t num_gradient_slots = 0;  // peak of live gradients (accumulators, arrived sums, partial gradients)

  // REQUIRES: the range lies within the pool.
  std::span<const Wait> waits_of(Range range) const { return slice(waits, range); }
  std::span<const Operand> operands_of(Range range) const { return slice(operands, range); }
  std::span<const Slot> segments_of(Range range) const { return slice(segments, range); }
  std::span<const Release> releases_of(Range range) const { return slice(releases, range); }

 private:
  template <class T>
  static std::span<const T> slice(const std::vector<T>& pool, Range range) {
    return {pool.data() + range.begin, pool.data() + range.end};
  }
};

struct Program {
  Layout layout;
  DepthMap depth;
  Routing routing;
  std::string schedule_name;
  bool forward_only = false;
  int post_ahead = 1;
  std::vector<Message> messages;  // in the common order
  std::vector<RankProgram> ranks;

  const Transfer& transfer_of(MessageId message) const {
    return routing.transfers[messages[message.index()].transfer.index()];
  }
  RankId sender(MessageId message) const {
    const Transfer& transfer = transfer_of(message);
    return messages[message.index()].direction == Direction::forward ? transfer.from : transfer.to;
  }
  RankId receiver(MessageId message) const {
    const Transfer& transfer = transfer_of(message);
    return messages[message.index()].direction == Direction::forward ? transfer.to : transfer.from;
  }
  int units(MessageId message) const { return transfer_of(message).units(); }
};

}  // namespace plumb
