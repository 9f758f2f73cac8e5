// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include "prefetch.hpp"
#include "verify.hpp"
#include "verify_names.hpp"
#include "verify_order.hpp"

namespace plumb {
namespace {

constexpr std::int32_t not_yet = -1;

// What a slot holds. `id` is a holding; for partials and their gradients the chunk before the cut.
struct Meaning {
  enum class Kind : std::uint8_t {
    nothing,
    value,
    partial,
    accumulator,        // the gradient sum of a holding, growing
    complete_gradient,  // the same on the closer's rank, after the closer's own backward
    arrived_sum,        // the sum of a child holding, not yet added
    partial_gradient
  };
  Kind kind = Kind::nothing;
  std::int32_t id = 0;
  Microbatch microbatch;
  friend bool operator==(const Meaning&, const Meaning&) = default;
};
using Kind = Meaning::Kind;

struct Occupant {
  Meaning meaning;
  std::int32_t contributions = 0;          // accumulator: so many have been added
  std::int32_t num_adds = 0;               // of them from children
  StepRef writer;                          // the last step that wrote it
  std::int32_t compute_reader = not_yet;   // last computation that read it since
  std::vector<std::int32_t> comm_readers;  // communication steps that read it since
  std::int32_t touched_at = not_yet;       // last position that used it
  bool released = true;                    // an empty slot is as good as a released one
};

class SlotVerifier {
 public:
  SlotVerifier(const Program& program, const ChunkSources& sources, RankId rank, FaultList& faults)
      : program_(program),
        sources_(sources),
        rank_(rank),
        steps_(program.ranks[rank.index()]),
        faults_(faults),
        order_(steps_),
        expected_(2 * static_cast<std::size_t>(program.layout.num_chunks())),
        slots_{std::vector<Occupant>(static_cast<std::size_t>(steps_.num_value_slots)),
               std::vector<Occupant>(static_cast<std::size_t>(steps_.num_gradient_slots))} {}

  void run() {
    for (const StepRef& step : steps_.order) {
      if (faults_.full()) return;
      step_ = step;
      if (step.comm) {
        prefetch_message(program_, steps_, static_cast<std::size_t>(step.index));
        const CommStep& comm = steps_.comm[static_cast<std::size_t>(step.index)];
        replay(comm);
        release(comm.releases);
      } else {
        const ComputeStep& compute = steps_.compute[static_cast<std::size_t>(step.index)];
        replay(compute);
        release(compute.releases);
      }
      ++position_;
    }
    for (const SlotClass slot_class : {SlotClass::value, SlotClass::gradient}) {
      for (std::int32_t i = 0; i < static_cast<std::int32_t>(slots(slot_class).size()); ++i) {
        const Occupant& last = slots(slot_class)[static_cast<std::size_t>(i)];
        if (last.released) continue;
        position_ = last.touched_at;
        step_ = steps_.order[static_cast<std::size_t>(position_)];
        fault(fmt::format("nothing releases {} after it, which holds {}", name({slot_class, i}), name(last.meaning)));
      }
    }
  }

 private:
  // --- What slots hold -------------------------------------------------------------------------------------------

  std::vector<Occupant>& slots(SlotClass slot_class) { return slots_[static_cast<std::size_t>(slot_class)]; }
  Occupant& at(Slot slot) { return slots(slot.slot_class)[static_cast<std::size_t>(slot.index)]; }
  const Holding& holding(HoldingId id) const { return program_.routing.holdings[id.index()]; }

  // The occupant, if it is what the step means to read and has certainly been written.
  Occupant* read(Slot slot, const Meaning& meaning) {
    Occupant* occupant = find(slot, meaning);
    if (occupant == nullptr) return nullptr;
    if (!order_.finished_before(occupant->writer, step_)) {
      fault(fmt::format("reads {} from {} without waiting for {}", name(meaning), name(slot), token(occupant->writer)));
    }
    if (step_.comm) {
      occupant->comm_readers.push_back(step_.index);
    } else {
      occupant->compute_reader = step_.index;
    }
    return occupant;
  }

  // Changes what is there already.
  Occupant* update(Slot slot, const Meaning& meaning) {
    Occupant* occupant = find(slot, meaning);
    if (occupant == nullptr) return nullptr;
    require_finished(slot, *occupant, "changes");
    written(*occupant);
    return occupant;
  }

  Occupant& overwrite(Slot slot, const Meaning& meaning) {
    Occupant& occupant = at(slot);
    if (occupant.meaning.kind != Kind::nothing) require_finished(slot, occupant, "overwrites");
    if (!occupant.released) {
      fault(fmt::format("overwrites {}, which still holds {}", name(slot), name(occupant.meaning)));
    }
    occupant.meaning = meaning;
    occupant.contributions = 0;
    occupant.num_adds = 0;
    occupant.released = false;
    written(occupant);
    return occupant;
  }

  Occupant* find(Slot slot, const Meaning& meaning) {
    Occupant& occupant = at(slot);
    if (occupant.meaning != meaning || occupant.released) {
      fault(fmt::format("needs {} in {}, which holds {}{}", name(meaning), name(slot), name(occupant.meaning),
                        occupant.released && occupant.meaning.kind != Kind::nothing ? ", already released" : ""));
      return nullptr;
    }
    occupant.touched_at = position_;
    return &occupant;
  }

  void written(Occupant& occupant) {
    occupant.writer = step_;
    occupant.compute_reader = not_yet;
    occupant.comm_readers.clear();
    occupant.touched_at = position_;
  }

  // Readers came after the writer, so where there are readers they stand for it.
  template <class Done>
  std::optional<StepRef> unfinished_user(const Occupant& occupant, Done&& done) const {
    for (const std::int32_t reader : occupant.comm_readers) {
      if (const StepRef user{true, reader}; !done(user)) return user;
    }
    if (occupant.compute_reader != not_yet) {
      if (const StepRef user{false, occupant.compute_reader}; !done(user)) return user;
    } else if (occupant.comm_readers.empty() && !done(occupant.writer)) {
      return occupant.writer;
    }
    return std::nullopt;
  }

  void require_finished(Slot slot, const Occupant& occupant, std::string_view verb) {
    const auto user = unfinished_user(occupant, [&](StepRef step) { return order_.finished_before(step, step_); });
    if (user) {
      fault(fmt::format("{} {} without waiting for {}, which uses {} there", verb, name(slot), token(*user),
                        name(occupant.meaning)));
    }
  }

  // A release stands at the last user; the others are in its waits, or have finished before anyhow.
  void release(Range range) {
    for (const Release& release : steps_.releases_of(range)) {
      Occupant& occupant = at(release.slot);
      if (occupant.touched_at != position_ || occupant.released) {
        fault(fmt::format("releases {}, which it does not use or has released", name(release.slot)));
        continue;
      }
      const auto waits = steps_.waits_of(release.waits);
      const auto user = unfinished_user(occupant, [&](StepRef step) {
        if (step == step_ || order_.finished_before(step, step_)) return true;
        return std::any_of(waits.begin(), waits.end(), [&](const Wait& wait) {
          const StepRef other(wait);
          return step == other || order_.finished_before(step, other);
        });
      });
      if (user) fault(fmt::format("releases {}, which {} may still use", name(release.slot), token(*user)));
      occupant.released = true;
    }
  }

  // --- Computations ----------------------------------------------------------------------------------------------

  void replay(const ComputeStep& step) {
    const std::vector<Expected>& expected = expected_operands(step.compute);
    const Microbatch m = step.compute.microbatch;
    const auto operands = steps_.operands_of(step.operands);
    if (operands.size() != expected.size()) {
      fault(fmt::format("has {} operands, needs {}", operands.size(), expected.size()));
      return;
    }
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].role != expected[i].role || operands[i].block != expected[i].block) {
        fault(fmt::format("operand {} is not {}", i, name(expected[i].meaning(m))));
        return;
      }
    }
    // Inputs first: a slot that is an input and an output at once then shows as overwritten before its reader has
    // finished.
    for (const bool writes : {false, true}) {
      for (std::size_t i = 0; i < operands.size(); ++i) {
        if (expected[i].writes == writes) apply(operands[i], expected[i], m);
      }
    }
  }

  struct Expected {
    Role role;
    BlockId block;
    bool writes;
    Kind kind;
    std::int32_t id;  // of the meaning
    Meaning meaning(Microbatch m) const { return {kind, id, m}; }
  };

  // The same for every microbatch.
  const std::vector<Expected>& expected_operands(const Compute& compute) {
    if (compute.op == Op::backward_weight) return nothing_expected_;
    const bool forward = compute.op == Op::forward;
    std::optional<std::vector<Expected>>& known = expected_[2 * compute.chunk.index() + (forward ? 0 : 1)];
    if (!known) known = expect_operands(compute.chunk, forward);
    return *known;
  }

  // What the depth map and the trees say this computation touches, in the order of roles.
  std::vector<Expected> expect_operands(ChunkId chunk, bool forward) const {
    std::vector<Expected> expected;
    const auto expect = [&](Role role, bool writes, Kind kind, HoldingId id) {
      expected.push_back({role, holding(id).block, writes, kind, id.value});
    };
    const auto expect_cut = [&](Role role, bool writes, Kind kind, ChunkId before) {
      expected.push_back({role, BlockId{}, writes, kind, before.value});
    };
    const DepthMap& depth = program_.depth;
    const bool partial_in = chunk.value > 0 && depth.partial_after(chunk.previous());
    const auto closed = [&](Role role, bool writes, Kind kind) {
      for (BlockId block = depth.first_closed(chunk); block < depth.end_closed(chunk); block = block.next()) {
        expect(role, writes, kind, program_.routing.root[block.index()]);
      }
    };
    for (const HoldingId id : sources_.of(chunk)) {
      expect(Role::source, false, Kind::value, id);
    }
    if (partial_in) expect_cut(Role::partial_in, false, Kind::partial, chunk.previous());
    closed(Role::closed, forward, Kind::value);
    if (forward) {
      if (depth.partial_after(chunk)) expect_cut(Role::partial_out, true, Kind::partial, chunk);
      return expected;
    }
    if (depth.partial_after(chunk)) expect_cut(Role::grad_partial_out, false, Kind::partial_gradient, chunk);
    closed(Role::grad_closed, true, Kind::accumulator);
    for (const HoldingId id : sources_.of(chunk)) {
      expect(Role::grad_source, true, Kind::accumulator, id);
    }
    if (partial_in) expect_cut(Role::grad_partial_in, true, Kind::partial_gradient, chunk.previous());
    return expected;
  }

  void apply(const Operand& operand, const Expected& expected, Microbatch m) {
    const Slot slot = slot_of(operand);
    if (operand.role == Role::grad_closed || operand.role == Role::grad_source) {
      const bool closes = operand.role == Role::grad_closed;
      Occupant* sum = accumulate(slot, expected.meaning(m), operand.first_touch, closes ? 0 : 1);
      if (sum != nullptr && closes) {
        require_complete(*sum);
        sum->meaning.kind = Kind::complete_gradient;
      }
      return;
    }
    if (operand.first_touch) fault(fmt::format("touches {} for the first time, which is no gradient sum", name(slot)));
    if (expected.writes) {
      overwrite(slot, expected.meaning(m));
    } else {
      read(slot, expected.meaning(m));
    }
  }

  // --- Gradient sums ---------------------------------------------------------------------------------------------

  // `first_touch` opens the sum, which is right for its first contribution only: a second opening leaves both
  // incomplete.
  Occupant* accumulate(Slot slot, const Meaning& meaning, bool first_touch, std::int32_t contributions) {
    Occupant* sum = first_touch ? &overwrite(slot, meaning) : update(slot, meaning);
    if (sum == nullptr) return nullptr;
    sum->contributions += contributions;
    const std::int32_t most = holding(HoldingId(meaning.id)).num_contributions();
    if (sum->contributions > most) {
      fault(fmt::format("makes contribution {} of {} to {}", sum->contributions, most, name(meaning)));
    }
    return sum;
  }

  void require_complete(const Occupant& sum) {
    const std::int32_t all = holding(HoldingId(sum.meaning.id)).num_contributions();
    if (sum.contributions != all) {
      fault(fmt::format("uses {} after {} of {} contributions", name(sum.meaning), sum.contributions, all));
    }
  }

  // --- Communication ---------------------------------------------------------------------------------------------

  void replay(const CommStep& step) {
    const auto segments = steps_.segments_of(step.segments);
    const Message& message = program_.messages[step.message.index()];
    switch (step.kind) {
      case CommKind::send:
      case CommKind::receive:
        // Wrong counts, classes and ranks are verify_messages' to report.
        if (segments.size() == static_cast<std::size_t>(program_.units(step.message))) {
          transfer(step, message, segments);
        }
        return;
      case CommKind::add:
        add(step, message, segments);
        return;
      case CommKind::zero: {
        if (holding(step.holding).num_contributions() != 0) fault("zeroes a sum that has contributions");
        if (segments[0].slot_class != SlotClass::gradient || holding(step.holding).rank != rank_) {
          fault("does not zero a gradient sum of this rank");
          return;
        }
        overwrite(segments[0], {Kind::accumulator, step.holding.value, message.microbatch});
        return;
      }
    }
  }

  void transfer(const CommStep& step, const Message& message, std::span<const Slot> segments) {
    const Transfer& transfer = program_.routing.transfers[message.transfer.index()];
    const Microbatch m = message.microbatch;
    const bool forward = message.direction == Direction::forward;
    const bool sends = step.kind == CommKind::send;
    const auto move = [&](Slot slot, const Meaning& meaning) {
      if (!sends) {
        overwrite(slot, meaning);
        return;
      }
      const Occupant* occupant = read(slot, meaning);
      if (occupant != nullptr && meaning.kind == Kind::accumulator) require_complete(*occupant);
    };
    std::size_t next = 0;
    if (transfer.partial) {
      move(segments[next++], {forward ? Kind::partial : Kind::partial_gradient, transfer.from_chunk.value, m});
    }
    for (const HoldingId id : transfer.holdings) {
      Meaning meaning{forward ? Kind::value : Kind::arrived_sum, id.value, m};
      if (sends && forward) meaning.id = holding(id).parent.value;
      if (sends && !forward) meaning.kind = Kind::accumulator;
      move(segments[next++], meaning);
    }
  }

  void add(const CommStep& step, const Message& message, std::span<const Slot> segments) {
    const Holding& child = holding(step.holding);
    if (child.is_root() || child.transfer != message.transfer || message.direction != Direction::backward) {
      fault("adds a sum that its message does not bring");
      return;
    }
    if (segments[0].slot_class != SlotClass::gradient || segments[1].slot_class != SlotClass::gradient) {
      fault("adds values, not gradients");
      return;
    }
    const Microbatch m = message.microbatch;
    read(segments[1], {Kind::arrived_sum, step.holding.value, m});
    const Holding& parent = holding(child.parent);
    Occupant* sum = accumulate(segments[0], {Kind::accumulator, child.parent.value, m}, step.first_touch, 1);
    if (sum == nullptr) return;
    // The order is fixed, so that the last bit of the sum is too.
    const auto place = static_cast<std::size_t>(sum->num_adds++);
    if (place < parent.children.size() && parent.children[place] != step.holding) {
      fault(fmt::format("adds the sum from rank {} where that from rank {} is due", child.rank.value,
                        holding(parent.children[place]).rank.value));
    }
  }

  // --- Reports ---------------------------------------------------------------------------------------------------

  void fault(std::string why) { faults_.add(rank_, position_, token(step_), std::move(why)); }
  std::string token(StepRef step) const { return step_token(program_, rank_, step); }
  static std::string name(Slot slot) {
    return fmt::format("{} slot {}", slot.slot_class == SlotClass::value ? "value" : "gradient", +slot.index);
  }
  std::string name(const Meaning& meaning) const {
    const auto block = [&] { return holding(HoldingId(meaning.id)).block.value; };
    const std::int32_t m = meaning.microbatch.value;
    switch (meaning.kind) {
      case Kind::nothing:
        return "nothing";
      case Kind::value:
        return fmt::format("b_{} of microbatch {}", block(), m);
      case Kind::partial:
        return fmt::format("the partial after chunk {} of microbatch {}", meaning.id, m);
      case Kind::accumulator:
        return fmt::format("the gradient sum of b_{} of microbatch {}", block(), m);
      case Kind::complete_gradient:
        return fmt::format("the finished gradient of b_{} of microbatch {}", block(), m);
      case Kind::arrived_sum:
        return fmt::format("the sum of b_{} of microbatch {} from rank {}", block(), m,
                           holding(HoldingId(meaning.id)).rank.value);
      case Kind::partial_gradient:
        return fmt::format("the gradient of the partial after chunk {} of microbatch {}", meaning.id, m);
    }
    return "?";
  }

  const Program& program_;
  const ChunkSources& sources_;
  RankId rank_;
  const RankProgram& steps_;
  FaultList& faults_;
  RankOrder order_;
  std::vector<std::optional<std::vector<Expected>>> expected_;  // [chunk][backward], once asked for
  const std::vector<Expected> nothing_expected_;
  std::array<std::vector<Occupant>, 2> slots_;  // [class][slot]
  StepRef step_;                                // the step at hand
  std::int32_t position_ = 0;
};

}  // namespace

void verify_slots(const Program& program, const ChunkSources& sources, RankId rank, FaultList& faults) {
  SlotVerifier(program, sources, rank, faults).run();
}

}  // namespace plumb
