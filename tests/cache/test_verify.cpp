// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <optional>
#include <string>

#include "cache/support/edit.hpp"
#include "cache/support/faults.hpp"
#include "cache/support/programs.hpp"
#include "plumb/cache/deadlock.hpp"
#include "support/catch.hpp"

namespace plumb {
namespace {

using test::contains;
using test::Dice;
using test::faults_of;
using test::must_be_found;

// A place in a program that some change is for; nothing if the program has none.
struct Place {
  std::size_t rank;
  std::size_t comm;
};

std::optional<Place> any_comm(const Program& program, Dice& dice,
                              const std::function<bool(const RankProgram&, const CommStep&)>& fits) {
  std::vector<Place> places;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    for (std::size_t i = 0; i < program.ranks[r].comm.size(); ++i) {
      if (fits(program.ranks[r], program.ranks[r].comm[i])) places.push_back({r, i});
    }
  }
  if (places.empty()) return std::nullopt;
  return places[static_cast<std::size_t>(dice.roll(0, static_cast<int>(places.size()) - 1))];
}

std::optional<Place> any_comm(const Program& program, Dice& dice, CommKind kind) {
  return any_comm(program, dice, [&](const RankProgram&, const CommStep& step) { return step.kind == kind; });
}

}  // namespace

TEST_CASE("every lowered program passes its verification", "[cache][verify]") {
  Dice dice(42);
  for (int trial = 0; trial < 500; ++trial) {
    const Program program = test::random_program(dice);
    INFO(test::describe(program));
    REQUIRE(faults_of(program) == "");
  }
}

TEST_CASE("two swapped receives of one channel are found", "[cache][verify]") {
  must_be_found("of its channel at the sender", 100, [](Program& program, Dice& dice) {
    const auto place = any_comm(program, dice, CommKind::receive);
    if (!place) return false;
    RankProgram& rank = program.ranks[place->rank];
    CommStep& first = rank.comm[place->comm];
    for (std::size_t i = place->comm + 1; i < rank.comm.size(); ++i) {
      CommStep& second = rank.comm[i];
      const bool same_channel =
          second.kind == CommKind::receive && second.peer == first.peer && second.lane == first.lane;
      if (!same_channel || second.segments.size() != first.segments.size()) continue;
      std::swap(first.message, second.message);
      std::swap(first.segments, second.segments);
      return true;
    }
    return false;
  });
}

TEST_CASE("a message without its send or its receive is found", "[cache][verify]") {
  for (const CommKind kind : {CommKind::send, CommKind::receive}) {
    must_be_found(kind == CommKind::send ? "is never sent" : "is never received", 60,
                  [&](Program& program, Dice& dice) {
                    const auto place = any_comm(program, dice, kind);
                    if (!place) return false;
                    test::drop(program.ranks[place->rank], {true, static_cast<std::int32_t>(place->comm)});
                    return true;
                  });
  }
}

TEST_CASE("a message that is missing altogether, or is another one's double, is found", "[cache][verify]") {
  must_be_found("there are", 40, [](Program& program, Dice&) {
    if (program.messages.empty()) return false;
    const MessageId last(program.messages.size() - 1);
    program.messages.pop_back();
    for (RankProgram& rank : program.ranks) {
      for (std::size_t i = rank.comm.size(); i-- > 0;) {
        if (rank.comm[i].message == last) test::drop(rank, {true, static_cast<std::int32_t>(i)});
      }
    }
    return true;
  });
  must_be_found("is there twice", 40, [](Program& program, Dice&) {
    if (program.messages.size() < 2) return false;
    program.messages.back() = program.messages.front();
    return true;
  });
}

TEST_CASE("a dropped addition leaves a sum that is used too early", "[cache][verify]") {
  must_be_found("contributions", 100, [](Program& program, Dice& dice) {
    // The last add of a sum; without an earlier one the sum would not be there at all, which reads differently.
    const auto place = any_comm(program, dice, [](const RankProgram&, const CommStep& step) {
      return step.kind == CommKind::add && !step.first_touch;
    });
    if (!place) return false;
    test::drop(program.ranks[place->rank], {true, static_cast<std::int32_t>(place->comm)});
    return true;
  });
}

TEST_CASE("an addition done twice is found", "[cache][verify]") {
  must_be_found("makes contribution", 60, [](Program& program, Dice& dice) {
    const auto place = any_comm(program, dice, CommKind::add);
    if (!place) return false;
    RankProgram& rank = program.ranks[place->rank];
    CommStep again = rank.comm[place->comm];
    again.first_touch = false;
    again.releases = {};
    again.waits = {static_cast<std::uint32_t>(rank.waits.size()), static_cast<std::uint32_t>(rank.waits.size()) + 1};
    rank.waits.push_back({Wait::On::comm, static_cast<std::int32_t>(place->comm)});
    const StepRef original{true, static_cast<std::int32_t>(place->comm)};
    std::vector<StepRef> order = rank.order;
    order.insert(std::find(order.begin(), order.end(), original) + 1,
                 {true, static_cast<std::int32_t>(rank.comm.size())});
    rank.comm.push_back(again);
    test::reorder(rank, order);
    return true;
  });
}

TEST_CASE("additions in another order than the fixed one are found", "[cache][verify]") {
  must_be_found("is due", 20, [](Program& program, Dice&) {
    for (Holding& holding : program.routing.holdings) {
      for (RankProgram& rank : program.ranks) {
        std::vector<std::size_t> adds;
        for (std::size_t i = 0; i < rank.comm.size(); ++i) {
          const CommStep& step = rank.comm[i];
          if (step.kind != CommKind::add || holding.children.size() < 2) continue;
          if (std::count(holding.children.begin(), holding.children.end(), step.holding) > 0) adds.push_back(i);
        }
        if (adds.size() < 2) continue;
        CommStep& a = rank.comm[adds[0]];
        CommStep& b = rank.comm[adds[1]];
        if (program.messages[a.message.index()].microbatch != program.messages[b.message.index()].microbatch) continue;
        std::swap(a.message, b.message);
        std::swap(a.holding, b.holding);
        std::swap(rank.segments[a.segments.begin + 1], rank.segments[b.segments.begin + 1]);
        return true;
      }
    }
    return false;
  });
}

TEST_CASE("a missing zero is found", "[cache][verify]") {
  must_be_found("needs the gradient sum", 20, [](Program& program, Dice& dice) {
    const auto place = any_comm(program, dice, CommKind::zero);
    if (!place) return false;
    test::drop(program.ranks[place->rank], {true, static_cast<std::int32_t>(place->comm)});
    return true;
  });
}

TEST_CASE("two swapped microbatches are found", "[cache][verify]") {
  must_be_found("needs", 100, [](Program& program, Dice& dice) {
    if (program.messages.size() < 2) return false;
    const auto pick = [&] {
      return static_cast<std::size_t>(dice.roll(0, static_cast<int>(program.messages.size()) - 1));
    };
    Message& a = program.messages[pick()];
    Message& b = program.messages[pick()];
    if (a.microbatch == b.microbatch || a.transfer != b.transfer || a.direction != b.direction) return false;
    std::swap(a.microbatch, b.microbatch);
    return true;
  });
  must_be_found("", 60, [](Program& program, Dice& dice) {
    // Two computations of one rank that read something exchange their microbatches, the operands stay.
    RankProgram& rank = program.ranks[static_cast<std::size_t>(dice.roll(0, program.layout.pp() - 1))];
    const auto pick = [&]() -> ComputeStep& {
      return rank.compute[static_cast<std::size_t>(dice.roll(0, static_cast<int>(rank.compute.size()) - 1))];
    };
    ComputeStep& step = pick();
    Compute& a = step.compute;
    Compute& b = pick().compute;
    if (step.operands.size() == 0 || a.microbatch == b.microbatch || a.chunk != b.chunk || a.op != b.op) return false;
    const Role first = rank.operands[step.operands.begin].role;
    std::swap(a.microbatch, b.microbatch);
    return first == Role::source || first == Role::partial_in;
  });
}

TEST_CASE("a step that uses another slot than it should is found", "[cache][verify]") {
  const auto other = [](Dice& dice, std::int32_t slot, std::int32_t num_slots) {
    const std::int32_t shift = dice.roll(1, num_slots - 1);
    return (slot + shift) % num_slots;
  };
  must_be_found("", 300, [&](Program& program, Dice& dice) {
    RankProgram& rank = program.ranks[static_cast<std::size_t>(dice.roll(0, program.layout.pp() - 1))];
    const bool operand = dice.roll(0, 1) == 0;
    const auto size = operand ? rank.operands.size() : rank.segments.size();
    if (size == 0) return false;
    const auto index = static_cast<std::size_t>(dice.roll(0, static_cast<int>(size) - 1));
    const SlotClass kind = operand ? slot_class(rank.operands[index].role) : rank.segments[index].slot_class;
    const std::int32_t num_slots = kind == SlotClass::value ? rank.num_value_slots : rank.num_gradient_slots;
    if (num_slots < 2) return false;
    if (operand) {
      Operand& changed = rank.operands[index];
      changed = {changed.role, changed.first_touch, other(dice, +changed.slot, num_slots), changed.block};
    } else {
      rank.segments[index] = {kind, other(dice, +rank.segments[index].index, num_slots)};
    }
    return true;
  });
}

TEST_CASE("a flipped first touch is found", "[cache][verify]") {
  must_be_found("", 100, [](Program& program, Dice& dice) {
    RankProgram& rank = program.ranks[static_cast<std::size_t>(dice.roll(0, program.layout.pp() - 1))];
    if (rank.operands.empty()) return false;
    const auto index = static_cast<std::size_t>(dice.roll(0, static_cast<int>(rank.operands.size()) - 1));
    rank.operands[index].first_touch ^= true;
    return true;
  });
}

TEST_CASE("a wrong lane, peer or class at one end is found", "[cache][verify]") {
  must_be_found("is on the wrong lane", 40, [](Program& program, Dice& dice) {
    const auto place = any_comm(program, dice, CommKind::send);
    if (!place) return false;
    MessageLane& lane = program.ranks[place->rank].comm[place->comm].lane;
    lane = lane == MessageLane::urgent ? MessageLane::bulk : MessageLane::urgent;
    return true;
  });
  must_be_found("but its message goes from rank", 40, [](Program& program, Dice& dice) {
    const auto place = any_comm(program, dice, CommKind::receive);
    if (!place) return false;
    RankId& peer = program.ranks[place->rank].comm[place->comm].peer;
    peer = RankId((peer.value + 1) % program.layout.pp());
    return true;
  });
}

TEST_CASE("a computation that is missing, doubled or misplaced is found", "[cache][verify]") {
  const auto any_compute = [](const Program& program, Dice& dice, std::size_t& rank) {
    rank = static_cast<std::size_t>(dice.roll(0, program.layout.pp() - 1));
    return static_cast<std::int32_t>(dice.roll(0, static_cast<int>(program.ranks[rank].compute.size()) - 1));
  };
  must_be_found("", 60, [&](Program& program, Dice& dice) {
    std::size_t rank = 0;
    const StepRef step{false, any_compute(program, dice, rank)};
    test::drop(program.ranks[rank], step);
    return true;
  });
  must_be_found("runs twice", 60, [&](Program& program, Dice& dice) {
    std::size_t rank = 0;
    const auto a = static_cast<std::size_t>(any_compute(program, dice, rank));
    const auto b = static_cast<std::size_t>(dice.roll(0, static_cast<int>(program.ranks[rank].compute.size()) - 1));
    if (program.ranks[rank].compute[a].compute == program.ranks[rank].compute[b].compute) return false;
    program.ranks[rank].compute[std::max(a, b)].compute = program.ranks[rank].compute[std::min(a, b)].compute;
    return true;
  });
  must_be_found("lives on rank", 40, [&](Program& program, Dice& dice) {
    if (program.layout.pp() == 1) return false;
    std::size_t rank = 0;
    Compute& compute =
        program.ranks[0]
            .compute[static_cast<std::size_t>(any_compute(program, dice, rank)) % program.ranks[0].compute.size()]
            .compute;
    compute.chunk = program.layout.chunk_of(RankId(1), VirtualStage(0));
    return true;
  });
}

TEST_CASE("trees that lose a reader, a child or a transfer are found", "[cache][verify]") {
  const auto any_holding = [](Program& program, Dice& dice) -> Holding* {
    std::vector<Holding>& holdings = program.routing.holdings;
    return holdings.empty() ? nullptr
                            : &holdings[static_cast<std::size_t>(dice.roll(0, static_cast<int>(holdings.size()) - 1))];
  };
  must_be_found("once each", 60, [&](Program& program, Dice& dice) {
    Holding* holding = any_holding(program, dice);
    if (holding == nullptr || holding->readers.empty()) return false;
    holding->readers.pop_back();
    return true;
  });
  must_be_found("is a child", 60, [&](Program& program, Dice& dice) {
    Holding* holding = any_holding(program, dice);
    if (holding == nullptr || holding->children.empty()) return false;
    holding->children.pop_back();
    return true;
  });
  must_be_found("is filled by", 60, [](Program& program, Dice& dice) {
    if (program.routing.transfers.empty()) return false;
    const int last = static_cast<int>(program.routing.transfers.size()) - 1;
    Transfer& transfer = program.routing.transfers[static_cast<std::size_t>(dice.roll(0, last))];
    if (transfer.holdings.empty()) return false;
    transfer.holdings.pop_back();
    return true;
  });
  must_be_found("its partial is carried by", 60, [](Program& program, Dice& dice) {
    if (program.routing.transfers.empty()) return false;
    const int last = static_cast<int>(program.routing.transfers.size()) - 1;
    program.routing.transfers[static_cast<std::size_t>(dice.roll(0, last))].partial ^= true;
    return true;
  });
}

}  // namespace plumb
