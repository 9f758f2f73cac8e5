// SPDX-License-Identifier: Apache-2.0
#include "rank_plan.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb {

Lists::Lists(std::size_t num_keys, std::span<const Entry> entries) : begin_(num_keys + 1, 0), values_(entries.size()) {
  for (const Entry& entry : entries)
    ++begin_[static_cast<std::size_t>(entry.key) + 1];
  for (std::size_t key = 0; key < num_keys; ++key)
    begin_[key + 1] += begin_[key];
  std::vector<std::uint32_t> next(begin_.begin(), begin_.end() - 1);
  for (const Entry& entry : entries)
    values_[next[static_cast<std::size_t>(entry.key)]++] = entry.value;
}

namespace {

using Kind = SlotContent::Kind;

class PlanMaker {
 public:
  PlanMaker(std::shared_ptr<const Program> program, RankId rank) {
    plan_.program = std::move(program);
    plan_.rank = rank;
  }

  RankPlan make() {
    check_ranges();
    number_counters();
    find_sources();
    find_microbatches();
    for (std::size_t i = 0; i < steps().compute.size(); ++i)
      plan_compute(steps().compute[i]);
    for (std::size_t i = 0; i < steps().comm.size(); ++i)
      plan_comm(static_cast<std::int32_t>(i));
    turn_waits_around();
    turn_releases_around();
    return std::move(plan_);
  }

 private:
  const Program& program() const { return *plan_.program; }
  const RankProgram& steps() const { return plan_.steps(); }
  const Routing& routing() const { return program().routing; }
  const Holding& holding(HoldingId id) const { return routing().holdings[id.index()]; }
  std::size_t num_microbatches() const { return static_cast<std::size_t>(program().layout.microbatches()); }

  // --- a program may come from a file: nothing below may leave its vectors ----------------------------------------
  [[noreturn]] void refuse(const char* what, std::size_t index) const {
    throw InputError(fmt::format("program, rank {}: {} {} is out of range", plan_.rank.value, what, index));
  }

  void check_ranges() const {
    if (plan_.rank.index() >= program().ranks.size()) refuse("rank", plan_.rank.index());
    const RankProgram& mine = steps();
    const auto check_range = [&](Range range, std::size_t size, const char* what, std::size_t i) {
      if (range.begin > range.end || range.end > size) refuse(what, i);
    };
    const auto check_slot = [&](Slot slot, const char* what, std::size_t i) {
      const auto limit = slot.slot_class == SlotClass::value ? mine.num_value_slots : mine.num_gradient_slots;
      if (slot.index < 0 || slot.index >= limit) refuse(what, i);
    };
    for (std::size_t i = 0; i < mine.waits.size(); ++i) {
      const auto limit = mine.waits[i].on == Wait::On::compute ? mine.compute.size() : mine.comm.size();
      if (mine.waits[i].step < 0 || static_cast<std::size_t>(mine.waits[i].step) >= limit) refuse("wait", i);
    }
    for (std::size_t i = 0; i < mine.releases.size(); ++i) {
      check_range(mine.releases[i].waits, mine.waits.size(), "the waits of release", i);
      check_slot(mine.releases[i].slot, "the slot of release", i);
    }
    for (std::size_t i = 0; i < mine.operands.size(); ++i) {
      check_slot(slot_of(mine.operands[i]), "the slot of operand", i);
    }
    for (std::size_t i = 0; i < mine.segments.size(); ++i)
      check_slot(mine.segments[i], "the slot of segment", i);
    for (std::size_t i = 0; i < mine.compute.size(); ++i)
      check_compute(i, check_range);
    for (std::size_t i = 0; i < mine.comm.size(); ++i)
      check_comm(i, check_range);
  }

  template <class CheckRange>
  void check_compute(std::size_t i, const CheckRange& check_range) const {
    const ComputeStep& step = steps().compute[i];
    check_range(step.waits, steps().waits.size(), "the waits of compute step", i);
    check_range(step.operands, steps().operands.size(), "the operands of compute step", i);
    check_range(step.releases, steps().releases.size(), "the releases of compute step", i);
    if (step.compute.chunk.value < 0 || step.compute.chunk.value >= program().layout.num_chunks() ||
        step.compute.microbatch.value < 0 || step.compute.microbatch.index() >= num_microbatches()) {
      refuse("the chunk or microbatch of compute step", i);
    }
    for (const Wait& wait : steps().waits_of(step.waits)) {
      if (wait.on == Wait::On::compute && static_cast<std::size_t>(wait.step) >= i) refuse("a wait of compute step", i);
    }
  }

  template <class CheckRange>
  void check_comm(std::size_t i, const CheckRange& check_range) const {
    const CommStep& step = steps().comm[i];
    check_range(step.waits, steps().waits.size(), "the waits of communication step", i);
    check_range(step.segments, steps().segments.size(), "the segments of communication step", i);
    check_range(step.releases, steps().releases.size(), "the releases of communication step", i);
    const bool moves = step.kind == CommKind::send || step.kind == CommKind::receive;
    if (step.kind != CommKind::zero && (step.message.value < 0 || step.message.index() >= program().messages.size())) {
      refuse("the message of communication step", i);
    }
    if (!moves && (step.holding.value < 0 || step.holding.index() >= routing().holdings.size() ||
                   step.segments.size() != (step.kind == CommKind::add ? 2U : 1U))) {
      refuse("the holding of communication step", i);
    }
    if (step.kind == CommKind::add && holding(step.holding).is_root()) refuse("the parent of communication step", i);
    if (moves && (step.peer.value < 0 || step.peer.index() >= program().ranks.size() || step.peer == plan_.rank)) {
      refuse("the peer of communication step", i);
    }
    if (moves && program().units(step.message) != static_cast<int>(step.segments.size())) {
      throw InputError(fmt::format("program, rank {}: communication step {} has {} segments for a message of {} units",
                                   plan_.rank.value, i, step.segments.size(), program().units(step.message)));
    }
  }

  // --- what slots hold --------------------------------------------------------------------------------------------
  void number_counters() {
    first_counter_.assign(routing().holdings.size(), -1);
    for (std::size_t h = 0; h < routing().holdings.size(); ++h) {
      const Holding& held = routing().holdings[h];
      if (held.rank != plan_.rank) continue;
      first_counter_[h] = static_cast<std::int32_t>(plan_.counters.size());
      for (std::size_t m = 0; m < num_microbatches(); ++m) {
        plan_.counters.push_back({held.block, Microbatch(m), held.num_contributions()});
      }
    }
  }

  std::int32_t counter(HoldingId id, Microbatch m) const {
    const std::int32_t first = first_counter_[id.index()];
    if (first < 0)
      throw InputError(fmt::format("program, rank {}: it sums gradients of another rank", plan_.rank.value));
    return first + m.value;
  }

  void find_sources() {
    for (std::size_t h = 0; h < routing().holdings.size(); ++h) {
      const Holding& held = routing().holdings[h];
      if (held.rank != plan_.rank) continue;
      for (const ChunkId reader : held.readers)
        source_[{reader, held.block}] = HoldingId(h);
    }
  }

  HoldingId source(ChunkId chunk, BlockId block) const {
    const auto found = source_.find({chunk, block});
    if (found == source_.end()) {
      throw InputError(fmt::format("program, rank {}: chunk {} reads block {} but the routing does not bring it",
                                   plan_.rank.value, chunk.value, block.value));
    }
    return found->second;
  }

  std::uint64_t of_holding(Kind kind, HoldingId id, Microbatch m) const {
    const Holding& held = holding(id);
    const VirtualStage stage = program().layout.virtual_stage_of(held.bringer);
    return SlotContent::of_block(kind, m, stage, held.block).packed();
  }

  HoldingId closed(BlockId block) const {
    if (block.value < 0 || block.index() >= routing().root.size()) refuse("block", block.index());
    return routing().root[block.index()];
  }

  // --- steps ------------------------------------------------------------------------------------------------------
  void plan_compute(const ComputeStep& step) {
    const auto begin = static_cast<std::uint32_t>(plan_.operands.size());
    for (const Operand& operand : steps().operands_of(step.operands)) {
      plan_.operands.push_back(plan_operand(step.compute, operand));
    }
    const auto end = static_cast<std::uint32_t>(plan_.operands.size());
    plan_.operands_of_compute.push_back({begin, end});
    plan_.most_operands = std::max<std::size_t>(plan_.most_operands, end - begin);
  }

  PlannedOperand plan_operand(const Compute& compute, const Operand& operand) const {
    PlannedOperand planned;
    planned.role = operand.role;
    planned.first_touch = operand.first_touch;
    planned.slot = slot_of(operand);
    planned.block = operand.block;
    const Microbatch m = compute.microbatch;
    const bool forward = compute.op == Op::forward;
    const auto partial = [m](Kind kind, ChunkId cut) { return SlotContent::of_partial(kind, m, cut).packed(); };
    switch (operand.role) {
      case Role::source:
        planned.content = of_holding(Kind::block, source(compute.chunk, operand.block), m);
        break;
      case Role::partial_in:
        planned.content = partial(Kind::partial, compute.chunk.previous());
        break;
      case Role::closed:
        planned.content = of_holding(Kind::block, closed(operand.block), m);
        planned.fills = forward;
        break;
      case Role::partial_out:
        planned.content = partial(Kind::partial, compute.chunk);
        planned.fills = forward;
        break;
      case Role::grad_partial_out:
        planned.content = partial(Kind::partial_gradient, compute.chunk);
        break;
      case Role::grad_closed:
        planned.content = of_holding(Kind::block_sum, closed(operand.block), m);
        planned.fills = operand.first_touch;
        planned.counter = counter(closed(operand.block), m);
        break;
      case Role::grad_source: {
        const HoldingId id = source(compute.chunk, operand.block);
        planned.content = of_holding(Kind::block_sum, id, m);
        planned.fills = operand.first_touch;
        planned.counter = counter(id, m);
        break;
      }
      case Role::grad_partial_in:
        planned.content = partial(Kind::partial_gradient, compute.chunk.previous());
        planned.fills = true;
        break;
    }
    return planned;
  }

  // A zero step carries no message: it belongs to the send that waits for it.
  void find_microbatches() {
    plan_.microbatch_of_comm.resize(steps().comm.size());
    for (std::size_t i = 0; i < steps().comm.size(); ++i) {
      const CommStep& step = steps().comm[i];
      if (step.message.value < 0) continue;
      const Microbatch m = program().messages[step.message.index()].microbatch;
      plan_.microbatch_of_comm[i] = m;
      if (step.kind != CommKind::send) continue;
      for (const Wait& wait : steps().waits_of(step.waits)) {
        if (wait.on != Wait::On::comm) continue;
        const auto waited = static_cast<std::size_t>(wait.step);
        if (steps().comm[waited].kind == CommKind::zero) plan_.microbatch_of_comm[waited] = m;
      }
    }
  }

  void plan_comm(std::int32_t index) {
    const CommStep& step = steps().comm[static_cast<std::size_t>(index)];
    const auto begin = static_cast<std::uint32_t>(plan_.segments.size());
    if (step.kind == CommKind::send || step.kind == CommKind::receive) {
      plan_message(step);
      plan_.channel_of_comm.push_back(queue(step, index));
    } else {
      plan_sum(step, plan_.microbatch_of_comm[static_cast<std::size_t>(index)]);
      plan_.channel_of_comm.push_back(-1);
    }
    const auto end = static_cast<std::uint32_t>(plan_.segments.size());
    plan_.segments_of_comm.push_back({begin, end});
    plan_.most_segments = std::max<std::size_t>(plan_.most_segments, end - begin);
  }

  void plan_sum(const CommStep& step, Microbatch m) {
    const std::span<const Slot> slots = steps().segments_of(step.segments);
    if (step.kind == CommKind::zero) {
      plan_.segments.push_back({slots[0], of_holding(Kind::block_sum, step.holding, m), true, -1});
      return;
    }
    const HoldingId parent = holding(step.holding).parent;
    plan_.segments.push_back({slots[0], of_holding(Kind::block_sum, parent, m), step.first_touch, counter(parent, m)});
    plan_.segments.push_back({slots[1], of_holding(Kind::arrived_sum, parent, m), false, -1});
  }

  void plan_message(const CommStep& step) {
    const Message& message = program().messages[step.message.index()];
    const Transfer& transfer = program().transfer_of(step.message);
    const Microbatch m = message.microbatch;
    const bool forward = message.direction == Direction::forward;
    const bool sends = step.kind == CommKind::send;
    const std::span<const Slot> slots = steps().segments_of(step.segments);
    std::size_t next = 0;
    if (transfer.partial) {
      const Kind kind = forward ? Kind::partial : Kind::partial_gradient;
      plan_.segments.push_back(
          {slots[next++], SlotContent::of_partial(kind, m, transfer.from_chunk).packed(), !sends, -1});
    }
    for (const HoldingId id : transfer.holdings) {
      PlannedSegment segment{slots[next++], 0, !sends, -1};
      // Forward a block goes from the parent's slot to the child's; backward its sum goes the other way.
      const HoldingId here = sends == forward ? holding(id).parent : id;
      if (forward) {
        segment.content = of_holding(Kind::block, here, m);
      } else if (sends) {
        segment.content = of_holding(Kind::block_sum, here, m);
        segment.counter = counter(here, m);
      } else {
        segment.content = of_holding(Kind::arrived_sum, here, m);
      }
      plan_.segments.push_back(segment);
    }
  }

  std::int32_t queue(const CommStep& step, std::int32_t index) {
    const bool sends = step.kind == CommKind::send;
    const auto [place, is_new] =
        channel_.try_emplace({step.peer, step.lane, sends}, static_cast<std::int32_t>(plan_.channels.size()));
    if (is_new) plan_.channels.push_back({step.peer, step.lane, sends, {}});
    plan_.channels[static_cast<std::size_t>(place->second)].steps.push_back(index);
    return place->second;
  }

  void turn_waits_around() {
    std::vector<Lists::Entry> comm_after_compute;
    std::vector<Lists::Entry> comm_after_comm;
    std::vector<Lists::Entry> compute_after_comm;
    for (std::size_t i = 0; i < steps().compute.size(); ++i) {
      std::int32_t waits = 0;
      for (const Wait& wait : steps().waits_of(steps().compute[i].waits)) {
        if (wait.on == Wait::On::compute) continue;
        compute_after_comm.push_back({+wait.step, static_cast<std::int32_t>(i)});
        ++waits;
      }
      plan_.num_comm_waits_of_compute.push_back(waits);
    }
    for (std::size_t i = 0; i < steps().comm.size(); ++i) {
      const std::span<const Wait> waits = steps().waits_of(steps().comm[i].waits);
      for (const Wait& wait : waits) {
        auto& entries = wait.on == Wait::On::compute ? comm_after_compute : comm_after_comm;
        entries.push_back({+wait.step, static_cast<std::int32_t>(i)});
      }
      plan_.num_waits_of_comm.push_back(static_cast<std::int32_t>(waits.size()));
    }
    plan_.comm_after_compute = Lists(plan_.num_compute(), comm_after_compute);
    plan_.comm_after_comm = Lists(plan_.num_comm(), comm_after_comm);
    plan_.compute_after_comm = Lists(plan_.num_comm(), compute_after_comm);
  }

  void turn_releases_around() {
    std::vector<Lists::Entry> after_compute;
    std::vector<Lists::Entry> after_comm;
    const auto add = [&](bool comm, std::size_t carrier, Range range) {
      for (const Release& release : steps().releases_of(range)) {
        const auto index = static_cast<std::int32_t>(plan_.releases.size());
        (comm ? after_comm : after_compute).push_back({static_cast<std::int32_t>(carrier), index});
        for (const Wait& wait : steps().waits_of(release.waits)) {
          (wait.on == Wait::On::comm ? after_comm : after_compute).push_back({+wait.step, index});
        }
        plan_.releases.push_back({release.slot, static_cast<std::int32_t>(release.waits.size()) + 1});
      }
    };
    for (std::size_t i = 0; i < steps().compute.size(); ++i)
      add(false, i, steps().compute[i].releases);
    for (std::size_t i = 0; i < steps().comm.size(); ++i)
      add(true, i, steps().comm[i].releases);
    plan_.releases_after_compute = Lists(plan_.num_compute(), after_compute);
    plan_.releases_after_comm = Lists(plan_.num_comm(), after_comm);
  }

  RankPlan plan_;
  std::vector<std::int32_t> first_counter_;  // [holding]: -1 on other ranks
  std::map<std::pair<ChunkId, BlockId>, HoldingId> source_;
  std::map<std::tuple<RankId, MessageLane, bool>, std::int32_t> channel_;
};

}  // namespace

RankPlan make_rank_plan(std::shared_ptr<const Program> program, RankId rank) {
  return PlanMaker(std::move(program), rank).make();
}

}  // namespace plumb
