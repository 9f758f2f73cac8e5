// SPDX-License-Identifier: Apache-2.0
#include "lower_rank.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include "cells.hpp"
#include "lower_period.hpp"
#include "lower_shape.hpp"
#include "plumb/schedule/invariant.hpp"
#include "prefault.hpp"
#include "slot_pool.hpp"
#include "wait_lists.hpp"

namespace plumb {

namespace {

constexpr std::int32_t nowhere = -1;

class RankLowering {
 public:
  RankLowering(const Program& program, const std::vector<Action>& row, const PlanRecord& plan, RankId rank,
               const PlanCosts& costs, LowerMemory& memory)
      : layout_(program.layout),
        post_ahead_(program.post_ahead),
        row_(row),
        order_(plan.order[rank.index()]),
        plan_(plan),
        rank_(rank),
        costs_(costs),
        shape_(program, rank),
        computes_(plan.computes[rank.index()]),
        cells_(shape_.num_cells, program.layout.microbatches(), memory.cells, memory.marked_cells),
        comm_end_(memory.comm_end),
        receives_(memory.receives),
        steps_walked_(memory.steps_walked) {
    comm_end_.clear();
    receives_.clear();
  }

  RankProgram lower() {
    reserve();
    find_receives();
    std::size_t next = 0;
    for (const PlanRecord::Repetition& repetition : plan_.repetitions) {
      const auto [begin, period] = repetition.ranks[rank_.index()];
      for (; next < begin; ++next)
        place(order_[next]);
      mark_.reset();
      bool may_repeat = repetition.microbatches > 0;
      for (std::size_t done = 0; done <= repetition.times; ++done) {
        if (may_repeat) {
          const std::size_t repeated = repeat_if_same(repetition, repetition.times + 1 - done);
          may_repeat = repeated == 0 && !has_new_slots_;
          done += repeated;
        }
        for (std::size_t i = begin; i < begin + period; ++i)
          place(repetition.later(order_[i], done));
      }
      next = begin + period;
    }
    for (; next < order_.size(); ++next)
      place(order_[next]);
    steps_walked_ += out_.order.size() - steps_repeated_;
    out_.num_value_slots = pools_[static_cast<std::size_t>(SlotClass::value)].num_slots();
    out_.num_gradient_slots = pools_[static_cast<std::size_t>(SlotClass::gradient)].num_slots();
    return std::move(out_);
  }

 private:
  void place(const PlanRecord::Start& start) {
    if (start.message != PlanRecord::Start::compute) return place_message(start);
    const Action& action = row_[action_];
    place_compute(in_second_ ? *action.second : action.first, !in_second_ && action.second.has_value());
    in_second_ = !in_second_ && action.second.has_value();
    if (!in_second_) ++action_;
  }

  // --- Repetition ------------------------------------------------------------------------------------------------

  // What decides how lowering goes on, as it was a period ago; the rest of it is in Cells.
  struct Mark {
    Lengths lengths;
    std::size_t action = 0;
    bool in_second = false;
    std::size_t next_receive = 0;
    std::array<SlotPool::State, 2> pools;
    PostedWaits posted;
  };

  // With `periods` of the plan's repetition ahead: if all is as a period ago, only later, repeats that period and
  // returns how often. Stops as many periods before the end as receives are posted ahead.
  std::size_t repeat_if_same(const PlanRecord::Repetition& repetition, std::size_t periods) {
    has_new_slots_ = false;
    if (mark_) {
      // Then the periods do not take each other's slots.
      has_new_slots_ =
          pools_[0].num_slots() != mark_->pools[0].num_slots || pools_[1].num_slots() != mark_->pools[1].num_slots;
      Period period{.duration = repetition.duration,
                    .microbatches = repetition.microbatches,
                    .messages = repetition.messages,
                    .computes = static_cast<std::int32_t>(out_.compute.size() - mark_->lengths.compute),
                    .comms = static_cast<std::int32_t>(out_.comm.size() - mark_->lengths.comm),
                    .slots = {SlotMap(pools_[0].num_slots()), SlotMap(pools_[1].num_slots())}};
      const std::size_t ahead =
          static_cast<std::size_t>(post_ahead_) / static_cast<std::size_t>(std::max(1, period.computes)) + 1;
      if (periods > ahead && is_same(period)) {
        repeat_period(period, periods - ahead);
        return periods - ahead;
      }
    }
    cells_.mark();
    mark_.emplace(
        Mark{Lengths(out_), action_, in_second_, next_receive_, {pools_[0].state(), pools_[1].state()}, posted_});
    return 0;
  }

  bool is_same(Period& period) const {
    const auto same_step = [&](Wait::On on, std::int32_t a, std::int32_t b) {
      if (a == nowhere || b == nowhere) return a == b;
      const Wait before{on, a};
      const Wait now{on, b};
      return now == period.later(before) && end_of(now) == end_of(before) + period.duration;
    };
    const auto same_cell = [&](std::size_t cell, std::int32_t a, std::int32_t b) {
      switch (shape_.cell_kinds[cell]) {
        case CellKind::value_slot:
          return period.slots[0].match(a, b);
        case CellKind::gradient_slot:
          return period.slots[1].match(a, b);
        case CellKind::count:
          return a == b;
        case CellKind::compute:
          return same_step(Wait::On::compute, a, b);
        case CellKind::comm:
          return same_step(Wait::On::comm, a, b);
      }
      return false;
    };
    return in_second_ == mark_->in_second && posted_.repeats(mark_->posted, period) &&
           pools_[0].repeats(mark_->pools[0], period, period.slots[0]) &&
           pools_[1].repeats(mark_->pools[1], period, period.slots[1]) &&
           cells_.repeats(static_cast<std::size_t>(period.microbatches), same_cell) && period.slots[0].complete() &&
           period.slots[1].complete();
  }

  void repeat_period(const Period& period, std::size_t times) {
    const std::size_t old_end = comm_end_.size();
    comm_end_.resize(old_end + times * static_cast<std::size_t>(period.comms));
    for (std::size_t i = old_end; i < comm_end_.size(); ++i)
      comm_end_[i] = comm_end_[i - static_cast<std::size_t>(period.comms)] + period.duration;
    repeat(out_, mark_->lengths, times, period);
    steps_repeated_ += times * static_cast<std::size_t>(period.computes + period.comms);
    action_ += times * (action_ - mark_->action);
    next_receive_ += times * (next_receive_ - mark_->next_receive);
    const Period all = period.by(times);
    const auto later = [this](const Period& by) {
      return [this, &by](std::size_t cell, std::int32_t value) {
        return value == nowhere ? value : cell_later(shape_.cell_kinds[cell], value, by);
      };
    };
    cells_.repeat(times, static_cast<std::size_t>(period.microbatches), later(period), later(all));
    posted_.repeat(all);
    for (std::size_t i = 0; i < pools_.size(); ++i)
      pools_[i].repeat(all, all.slots[i]);
  }

  // --- Before the walk -------------------------------------------------------------------------------------------

  void reserve() {
    const auto microbatches = static_cast<std::size_t>(layout_.microbatches());
    reserve_at_once(out_.compute, computes_.size());
    reserve_at_once(out_.comm, shape_.num_comm_steps * microbatches);
    reserve_at_once(out_.order, computes_.size() + shape_.num_comm_steps * microbatches);
    reserve_at_once(out_.operands, shape_.num_operands * microbatches);
    reserve_at_once(out_.segments, shape_.num_segments * microbatches);
    const auto num_tenants = std::count_if(shape_.tenants.begin(), shape_.tenants.end(),
                                           [](const RankShape::Tenant& tenant) { return tenant.num_ends > 0; });
    out_.releases.reserve(static_cast<std::size_t>(num_tenants) * microbatches);
    out_.waits.reserve(shape_.most_waits * microbatches);
    comm_end_.reserve(shape_.num_comm_steps * microbatches);
  }

  // A receive takes its slots `post_ahead` computations before its message starts. Receives keep their order.
  void find_receives() {
    std::int32_t computes = 0;
    plan_.for_each_start(rank_, [&](const PlanRecord::Start& start) {
      if (start.message == PlanRecord::Start::compute) {
        ++computes;
      } else if (!end_of(start.hop).sends) {
        receives_.push_back({start.hop, start.microbatch, computes});
      }
    });
  }

  const RankShape::End& end_of(std::int32_t hop) const {
    return shape_.ends[static_cast<std::size_t>(shape_.end_of[static_cast<std::size_t>(hop)])];
  }

  template <class T>
  static std::span<const T> slice(const std::vector<T>& pool, Range range) {
    return {pool.data() + range.begin, pool.data() + range.end};
  }

  // --- Slots -----------------------------------------------------------------------------------------------------

  static std::int32_t& slot_cell(std::int32_t* row, std::int32_t tenant) {
    return row[tenant * RankShape::cells_per_tenant];
  }
  const RankShape::Tenant& tenant_of(std::int32_t tenant) const {
    return shape_.tenants[static_cast<std::size_t>(tenant)];
  }
  SlotPool& pool_of(std::int32_t tenant) { return pools_[static_cast<std::size_t>(tenant_of(tenant).slot_class)]; }

  void post_receives_before(std::int32_t compute) {
    while (post_ahead_ > 0 && next_receive_ < receives_.size() &&
           receives_[next_receive_].computes_before - post_ahead_ <= compute) {
      post(receives_[next_receive_++], computes_[static_cast<std::size_t>(compute)].start);
    }
  }

  using Receive = LowerMemory::Receive;

  void post(const Receive& receive, std::int64_t at) {
    std::int32_t* const row = cells_.row(receive.microbatch);
    users_.clear();
    for (const std::int32_t tenant : slice(shape_.tenants_of, end_of(receive.hop).segments))
      allocate(row, tenant, at, users_);
    posted_.push(users_);
  }

  void allocate(std::int32_t* row, std::int32_t tenant, std::int64_t at, std::vector<Wait>& waits) {
    SlotPool& pool = pool_of(tenant);
    const std::int32_t slot = pool.take(at);
    slot_cell(row, tenant) = slot;
    const std::span<const Wait> former = pool.former_users(slot);
    waits.insert(waits.end(), former.begin(), former.end());
  }

  // Takes a slot at a planned time if the tenant has none yet; true if it did.
  bool touch(std::int32_t* row, std::int32_t tenant, std::int64_t at) {
    if (slot_cell(row, tenant) != nowhere) return false;
    allocate(row, tenant, at, step_waits_);
    return true;
  }

  std::int64_t end_of(Wait step) const {
    const auto index = static_cast<std::size_t>(step.step);
    return step.on == Wait::On::compute ? computes_[index].end : comm_end_[index];
  }

  void release_if_last(std::int32_t* row, std::int32_t tenant, Wait step) {
    const RankShape::Tenant& shape = tenant_of(tenant);
    std::int32_t* const cells = row + tenant * RankShape::cells_per_tenant;
    const std::int32_t slot = cells[0];
    std::int32_t& num_ends = cells[1];
    if (++num_ends + 1 != shape.num_ends) return;  // counted from -1
    cells[0] = nowhere;
    // What must finish before the slot may be overwritten. Partials and gradients are used in a chain, so the last user
    // stands for all. A value has independent users: this rank's computations and one send per child holding.
    const std::uint32_t begin = size_of(released_waits_);
    std::int64_t free_at = end_of(step);
    const auto also = [&](Wait user) {
      if (user == step) return;
      free_at = std::max(free_at, end_of(user));
      released_waits_.push_back(user);
    };
    if (shape.many_users) {
      for (const CellId send : slice(shape_.cells, shape.sends))
        also({Wait::On::comm, row[send]});
      if (shape.last_compute != no_cell) also({Wait::On::compute, row[shape.last_compute]});
    }
    pools_[static_cast<std::size_t>(shape.slot_class)].give_back(
        slot, step, std::span<const Wait>(released_waits_).subspan(begin), free_at);
    add_release(released_, {shape.slot_class, slot}, {begin, size_of(released_waits_)});
  }

  // --- Waits -----------------------------------------------------------------------------------------------------

  void wait_for_comm(std::int32_t step) {
    if (step != nowhere) step_waits_.push_back({Wait::On::comm, step});
  }

  // Ascending and without repetition; the latest computation stands for all earlier ones.
  Range store_waits(std::span<Wait> waits) {
    const std::uint32_t begin = size_of(out_.waits);
    sort_few(waits);
    for (std::size_t i = 0; i < waits.size(); ++i) {
      const bool last = i + 1 == waits.size();
      const bool repeated = !last && waits[i] == waits[i + 1];
      const bool superseded = !last && waits[i].on == Wait::On::compute && waits[i + 1].on == Wait::On::compute;
      if (!repeated && !superseded) out_.waits.push_back(waits[i]);
    }
    return {begin, size_of(out_.waits)};
  }

  Range store_releases() {
    const std::uint32_t begin = size_of(out_.releases);
    for (const Release& release : released_) {
      const std::span<Wait> users(released_waits_);
      const Range stored = store_waits(users.subspan(release.waits.begin, release.waits.size()));
      add_release(out_.releases, release.slot, stored);
    }
    released_.clear();
    released_waits_.clear();
    return {begin, size_of(out_.releases)};
  }

  // --- Computations ----------------------------------------------------------------------------------------------

  void place_compute(const Compute& compute, bool overlaps_next) {
    const auto index = static_cast<std::int32_t>(out_.compute.size());
    const std::int64_t start = computes_[out_.compute.size()].start;
    out_.order.push_back({false, index});
    ComputeStep& step = out_.compute.emplace_back();
    step.compute = compute;
    step.overlaps_next = overlaps_next;
    post_receives_before(index);
    step_waits_.clear();
    step.operands = {size_of(out_.operands), size_of(out_.operands)};
    if (compute.op == Op::backward_weight) {
      step.waits = {size_of(out_.waits), size_of(out_.waits)};
      step.releases = {size_of(out_.releases), size_of(out_.releases)};
      return;
    }
    const std::size_t stage = layout_.virtual_stage_of(compute.chunk).index();
    const RankShape::Computation& shape = (compute.op == Op::forward ? shape_.forward : shape_.backward)[stage];
    std::int32_t* const row = cells_.row(compute.microbatch);
    const auto operands = slice(shape_.operands, shape.operands);
    for (const RankShape::Operand& operand : operands) {
      const bool first_touch = operand.may_open && touch(row, operand.tenant, start);
      const std::int32_t slot = slot_cell(row, operand.tenant);
      require(slot != nowhere,
              [&] { return fmt::format("lower: {} reads a slot that nothing filled", to_string(compute)); });
      out_.operands.push_back({operand.role, operand.accumulates && first_touch, slot, operand.block});
    }
    step.operands.end = size_of(out_.operands);
    row[shape.done] = index;  // it may be the last computation of what it releases
    for (const std::int32_t tenant : slice(shape_.tenants_of, shape.ends))
      release_if_last(row, tenant, {Wait::On::compute, index});
    // List order gives the computations.
    std::erase_if(step_waits_, [](const Wait& wait) { return wait.on == Wait::On::compute; });
    for (const CellId cell : slice(shape_.cells, shape.arrivals))
      wait_for_comm(row[cell]);
    step.waits = store_waits(step_waits_);
    step.releases = store_releases();
    for (const std::int32_t sum : slice(shape_.sum_lists, shape.completes))
      place_possible_adds(sum, row);
  }

  // --- Communication ---------------------------------------------------------------------------------------------

  CommStep& begin_comm(CommKind kind, MessageId id, std::int64_t end) {
    out_.order.push_back({true, static_cast<std::int32_t>(out_.comm.size())});
    comm_end_.push_back(end);
    step_waits_.clear();
    CommStep& step = out_.comm.emplace_back();
    step.kind = kind;
    step.message = id;
    step.segments = {size_of(out_.segments), size_of(out_.segments)};
    return step;
  }
  std::int32_t last_comm() const { return static_cast<std::int32_t>(out_.comm.size()) - 1; }

  // Takes a slot for a segment; true if it had none.
  bool add_segment(CommStep& step, std::int32_t* row, std::int32_t tenant, std::int64_t start, bool may_open) {
    const bool first_touch = touch(row, tenant, start);
    require(!first_touch || may_open, [&] {
      return fmt::format("lower: communication step {} of rank {} reads a slot that nothing filled", last_comm(),
                         rank_.value);
    });
    out_.segments.push_back({tenant_of(tenant).slot_class, slot_cell(row, tenant)});
    ++step.segments.end;
    return first_touch;
  }

  void place_message(const PlanRecord::Start& planned) {
    const RankShape::End& end = end_of(planned.hop);
    const MessageId id(planned.message);
    const std::int64_t start = planned.at;
    const bool forward = planned.hop % 2 == 0;
    std::int32_t* const row = cells_.row(planned.microbatch);
    for (const std::int32_t sum : slice(shape_.sum_lists, end.zeros))
      place_zero(shape_.sums[static_cast<std::size_t>(sum)], id, row, start);
    const std::int64_t sent = start + (forward ? costs_.value_unit : costs_.gradient_unit) * end.units;
    CommStep& step =
        begin_comm(end.sends ? CommKind::send : CommKind::receive, id, end.sends ? sent : sent + costs_.latency);
    row[end.done] = last_comm();  // a send is among the users of what it releases
    step.lane = end.lane;
    step.peer = end.peer;
    if (!end.sends) {
      if (posted_.empty()) post(receives_[next_receive_++], start);
      posted_.pop(step_waits_);
    }
    const auto segments = slice(shape_.tenants_of, end.segments);
    for (const std::int32_t tenant : segments)
      add_segment(step, row, tenant, start, false);
    for (const std::int32_t tenant : segments)
      release_if_last(row, tenant, {Wait::On::comm, last_comm()});
    if (end.sends) {
      if (end.after_compute != no_cell) step_waits_.push_back({Wait::On::compute, row[end.after_compute]});
      for (const CellId cell : slice(shape_.cells, end.after_comm))
        wait_for_comm(row[cell]);
    }
    step.waits = store_waits(step_waits_);
    step.releases = store_releases();
    for (const std::int32_t sum : slice(shape_.sum_lists, end.completes))
      place_possible_adds(sum, row);
  }

  void place_zero(const RankShape::Sum& sum, MessageId id, std::int32_t* row, std::int64_t start) {
    CommStep& step = begin_comm(CommKind::zero, id, start);
    step.holding = sum.holding;
    add_segment(step, row, sum.accumulator, start, true);
    release_if_last(row, sum.accumulator, {Wait::On::comm, last_comm()});
    step.waits = store_waits(step_waits_);
    step.releases = store_releases();
    row[sum.zero] = last_comm();
  }

  // Own contributions first, then the children's in their order; stops at the first that is not there yet.
  void place_possible_adds(std::int32_t number, std::int32_t* row) {
    const RankShape::Sum& sum = shape_.sums[static_cast<std::size_t>(number)];
    const std::int32_t own = sum.own_done == no_cell ? nowhere : row[sum.own_done];
    if (sum.own_done != no_cell && own == nowhere) return;
    const auto children = slice(shape_.children, sum.children);
    std::int32_t& num_added = row[sum.num_added];  // counted from -1
    while (static_cast<std::size_t>(num_added + 1) < children.size()) {
      const RankShape::Child& child = children[static_cast<std::size_t>(num_added + 1)];
      const std::int32_t received = row[child.received];
      if (received == nowhere) return;
      place_add(sum, child, own, received, row);
      ++num_added;
    }
  }

  void place_add(const RankShape::Sum& sum, const RankShape::Child& child, std::int32_t own, std::int32_t received,
                 std::int32_t* row) {
    std::int32_t& last_add = row[sum.last_add];
    std::int64_t at = end_of({Wait::On::comm, received});
    if (last_add != nowhere) {
      at = std::max(at, end_of({Wait::On::comm, last_add}));
    } else if (own != nowhere) {
      at = std::max(at, end_of({Wait::On::compute, own}));
    }
    CommStep& step = begin_comm(CommKind::add, out_.comm[static_cast<std::size_t>(received)].message, at);
    step.holding = child.holding;
    step.first_touch = add_segment(step, row, sum.accumulator, at, true);
    add_segment(step, row, child.arrived, at, false);
    release_if_last(row, sum.accumulator, {Wait::On::comm, last_comm()});
    release_if_last(row, child.arrived, {Wait::On::comm, last_comm()});
    wait_for_comm(received);
    if (own != nowhere) step_waits_.push_back({Wait::On::compute, own});
    wait_for_comm(last_add);
    step.waits = store_waits(step_waits_);
    step.releases = store_releases();
    last_add = last_comm();
  }

  const Layout& layout_;
  int post_ahead_;
  const std::vector<Action>& row_;
  const std::vector<PlanRecord::Start>& order_;
  const PlanRecord& plan_;
  RankId rank_;
  const PlanCosts& costs_;
  RankShape shape_;
  const std::vector<PlannedTimes>& computes_;
  Cells cells_;
  RankProgram out_;
  std::vector<std::int64_t>& comm_end_;  // like out_.comm, by the plan
  std::vector<Receive>& receives_;
  std::size_t& steps_walked_;
  std::size_t action_ = 0;  // of row_, to come next
  bool in_second_ = false;
  std::size_t next_receive_ = 0;
  PostedWaits posted_;
  std::array<SlotPool, 2> pools_;
  std::vector<Wait> step_waits_;   // of the step at hand
  std::vector<Release> released_;  // by the step at hand, with ranges of released_waits_
  std::vector<Wait> released_waits_;
  std::vector<Wait> users_;
  std::optional<Mark> mark_;
  bool has_new_slots_ = false;  // since the mark
  std::size_t steps_repeated_ = 0;
};

}  // namespace

RankProgram lower_rank(const Program& program, const std::vector<Action>& row, const PlanRecord& plan, RankId rank,
                       const PlanCosts& costs, LowerMemory& memory) {
  return RankLowering(program, row, plan, rank, costs, memory).lower();
}

}  // namespace plumb
