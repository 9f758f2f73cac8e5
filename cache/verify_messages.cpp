// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "deadlock_order.hpp"
#include "prefetch.hpp"
#include "verify.hpp"
#include "verify_names.hpp"

namespace plumb {
namespace {

constexpr std::int32_t unplaced = -1;

std::string name_of(const Program& program, std::size_t message) {
  const Message& m = program.messages[message];
  return fmt::format("message {} ({}, transfer {}, microbatch {})", message,
                     m.direction == Direction::forward ? "forward" : "backward", m.transfer.value, m.microbatch.value);
}

// Exactly one message per transfer, microbatch and direction. The number is compared first, so that the table of what
// was seen is never larger than the program itself.
void verify_message_set(const Program& program, FaultList& faults) {
  const auto microbatches = static_cast<std::size_t>(program.layout.microbatches());
  const std::size_t per_direction = program.routing.transfers.size() * microbatches;
  const std::size_t expected = per_direction * (program.forward_only ? 1 : 2);
  if (program.messages.size() != expected) {
    faults.add(RankId{}, 0, "messages",
               fmt::format("there are {}, but {} transfers of {} microbatches make {}", program.messages.size(),
                           program.routing.transfers.size(), microbatches, expected));
    return;
  }
  std::vector<bool> seen(expected, false);
  for (std::size_t i = 0; i < program.messages.size(); ++i) {
    const Message& message = program.messages[i];
    const bool backward = message.direction == Direction::backward;
    const std::size_t cell =
        (backward ? per_direction : 0) + message.transfer.index() * microbatches + message.microbatch.index();
    if (cell >= expected || seen[cell]) {
      faults.add(program.sender(MessageId(i)), 0, name_of(program, i),
                 cell >= expected ? "goes backward in a forward-only program" : "is there twice");
      continue;
    }
    seen[cell] = true;
  }
}

// Both ends of every message, and their places in their channels.
class EndsVerifier {
 public:
  EndsVerifier(const Program& program, FaultList& faults)
      : program_(program),
        faults_(faults),
        follows_one_order_(follows_one_order(program)),
        sent_as_(follows_one_order_ ? 0 : program.messages.size(), unplaced),
        received_as_(sent_as_),
        next_in_channel_(program.ranks.size() * 4, 0) {
    for (const Transfer& transfer : program.routing.transfers) {
      hops_.push_back({transfer.from, transfer.to, transfer.lane, static_cast<std::uint32_t>(transfer.units())});
    }
  }

  void run() {
    for (RankId rank; rank.index() < program_.ranks.size(); rank = rank.next()) {
      std::fill(next_in_channel_.begin(), next_in_channel_.end(), 0);
      const std::vector<StepRef>& order = program_.ranks[rank.index()].order;
      for (std::size_t position = 0; position < order.size() && !faults_.full(); ++position) {
        if (order[position].comm) check_end(rank, order[position], static_cast<std::int32_t>(position));
      }
    }
    for (std::size_t i = 0; i < sent_as_.size() && !faults_.full(); ++i) {
      const MessageId id(i);
      if (sent_as_[i] == unplaced) faults_.add(program_.sender(id), 0, name_of(program_, i), "is never sent");
      if (received_as_[i] == unplaced) faults_.add(program_.receiver(id), 0, name_of(program_, i), "is never received");
      if (sent_as_[i] != unplaced && received_as_[i] != unplaced && sent_as_[i] != received_as_[i]) {
        faults_.add(program_.receiver(id), 0, name_of(program_, i),
                    fmt::format("is number {} of its channel at the sender and number {} at the receiver", sent_as_[i],
                                received_as_[i]));
      }
    }
  }

 private:
  void check_end(RankId rank, StepRef step, std::int32_t position) {
    const std::vector<CommStep>& list = program_.ranks[rank.index()].comm;
    const CommStep& comm = list[static_cast<std::size_t>(step.index)];
    if (static_cast<std::size_t>(step.index) + prefetch_distance < list.size()) {
      const std::size_t later = list[static_cast<std::size_t>(step.index) + prefetch_distance].message.index();
      prefetch(program_.messages, later);
      if (!follows_one_order_) prefetch(sent_as_, later);
      if (!follows_one_order_) prefetch(received_as_, later);
    }
    if (comm.kind != CommKind::send && comm.kind != CommKind::receive) return;
    const bool sends = comm.kind == CommKind::send;
    const std::size_t channel =
        comm.peer.index() * 4 + static_cast<std::size_t>(comm.lane) * 2 + static_cast<std::size_t>(sends);
    const std::int32_t number = next_in_channel_[channel]++;
    const bool good = sound(rank, comm);
    if (good && follows_one_order_) return;  // it is there once, and in the same place at the other end
    std::vector<std::int32_t>& placed = sends ? sent_as_ : received_as_;
    if (good && placed[comm.message.index()] == unplaced) {
      placed[comm.message.index()] = number;
      return;
    }
    const std::string why = wrong_with(rank, comm, placed, number);
    if (!why.empty()) faults_.add(rank, position, step_token(program_, rank, step), why);
  }

  // Whether wrong_with will find nothing but, perhaps, that the message was there before.
  bool sound(RankId rank, const CommStep& comm) const {
    const Message& message = program_.messages[comm.message.index()];
    const Hop& hop = hops_[message.transfer.index()];
    const bool forward = message.direction == Direction::forward;
    const bool from_here = forward == (comm.kind == CommKind::send);
    if (rank != (from_here ? hop.from : hop.to) || comm.peer != (from_here ? hop.to : hop.from) ||
        comm.lane != hop.lane || comm.segments.size() != hop.units) {
      return false;
    }
    for (const Slot& slot : program_.ranks[rank.index()].segments_of(comm.segments)) {
      if (slot.slot_class != (forward ? SlotClass::value : SlotClass::gradient)) return false;
    }
    return true;
  }

  std::string wrong_with(RankId rank, const CommStep& comm, std::vector<std::int32_t>& placed, std::int32_t number) {
    const bool sends = comm.kind == CommKind::send;
    const RankId sender = program_.sender(comm.message);
    const RankId receiver = program_.receiver(comm.message);
    if (rank != (sends ? sender : receiver) || comm.peer != (sends ? receiver : sender)) {
      return fmt::format("is between ranks {} and {}, but its message goes from rank {} to rank {}", rank.value,
                         comm.peer.value, sender.value, receiver.value);
    }
    if (!follows_one_order_ && placed[comm.message.index()] != unplaced) {
      return fmt::format("message {} is {} twice", comm.message.value, sends ? "sent" : "received");
    }
    if (!follows_one_order_) placed[comm.message.index()] = number;
    if (comm.lane != program_.transfer_of(comm.message).lane) return "is on the wrong lane";
    const int units = program_.units(comm.message);
    if (comm.segments.size() != static_cast<std::size_t>(units)) {
      return fmt::format("has {} segments, its transfer carries {}", comm.segments.size(), units);
    }
    const bool forward = program_.messages[comm.message.index()].direction == Direction::forward;
    for (const Slot& slot : program_.ranks[rank.index()].segments_of(comm.segments)) {
      if (slot.slot_class != (forward ? SlotClass::value : SlotClass::gradient)) {
        return forward ? "carries a gradient slot forward" : "carries a value slot backward";
      }
    }
    return {};
  }

  // What the ends of a message must agree with.
  struct Hop {
    RankId from;
    RankId to;
    MessageLane lane;
    std::uint32_t units;
  };

  const Program& program_;
  FaultList& faults_;
  std::vector<Hop> hops_;                      // [transfer]
  bool follows_one_order_;                     // then there is nothing to keep of the ends
  std::vector<std::int32_t> sent_as_;          // [message]: its number in the channel
  std::vector<std::int32_t> received_as_;      // [message]
  std::vector<std::int32_t> next_in_channel_;  // [peer][lane][sends], of one rank
};

}  // namespace

void verify_messages(const Program& program, FaultList& faults) {
  verify_message_set(program, faults);
  EndsVerifier(program, faults).run();
}

void verify_computes(const Program& program, FaultList& faults) {
  const Layout& layout = program.layout;
  const auto cells = static_cast<std::size_t>(layout.num_chunks()) * static_cast<std::size_t>(layout.microbatches());
  std::size_t num_steps = 0;
  for (const RankProgram& rank : program.ranks) {
    num_steps += rank.compute.size();
  }
  if (num_steps < cells * (program.forward_only ? 1 : 2)) {  // also keeps the table no larger than the program
    faults.add(RankId{}, 0, "computations",
               fmt::format("there are {}, too few for {} chunks of {} microbatches", num_steps, layout.num_chunks(),
                           layout.microbatches()));
    return;
  }
  constexpr std::uint8_t forward = 1;
  constexpr std::uint8_t input = 2;
  constexpr std::uint8_t weight = 4;
  std::vector<std::uint8_t> done(cells, 0);
  for (RankId rank; rank.index() < program.ranks.size(); rank = rank.next()) {
    const RankProgram& steps = program.ranks[rank.index()];
    std::int32_t position = 0;
    for (const StepRef& step : steps.order) {
      const std::int32_t here = position++;
      if (step.comm) continue;
      const Compute& compute = steps.compute[static_cast<std::size_t>(step.index)].compute;
      std::uint8_t& state =
          done[compute.chunk.index() * static_cast<std::size_t>(layout.microbatches()) + compute.microbatch.index()];
      std::uint8_t does = forward;
      std::uint8_t needs = 0;
      if (compute.op == Op::backward_weight) {
        does = weight;
        needs = forward | input;
      } else if (compute.op != Op::forward) {
        does = compute.op == Op::backward ? input | weight : input;
        needs = forward;
      }
      if (layout.rank_of(compute.chunk) != rank) {
        faults.add(rank, here, to_string(compute),
                   fmt::format("chunk {} lives on rank {}", compute.chunk.value, layout.rank_of(compute.chunk).value));
      } else if ((state & does) != 0) {
        faults.add(rank, here, to_string(compute), "runs twice");
      } else if ((state & needs) != needs) {
        faults.add(rank, here, to_string(compute), "runs before what it follows");
      } else if (program.forward_only && does != forward) {
        faults.add(rank, here, to_string(compute), "runs in a forward-only program");
      }
      state = static_cast<std::uint8_t>(state | does);
    }
  }
  const std::uint8_t all = program.forward_only ? forward : forward | input | weight;
  for (std::size_t cell = 0; cell < cells && !faults.full(); ++cell) {
    const ChunkId chunk(cell / static_cast<std::size_t>(layout.microbatches()));
    if ((done[cell] & all) == all) continue;
    faults.add(layout.rank_of(chunk), 0, fmt::format("chunk {}", chunk.value),
               fmt::format("{} is missing for microbatch {}",
                           (done[cell] & forward) == 0 ? "the forward" : "a part of the backward",
                           cell % static_cast<std::size_t>(layout.microbatches())));
  }
}

}  // namespace plumb
