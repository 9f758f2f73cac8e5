// SPDX-License-Identifier: Apache-2.0
#include "lower_shape.hpp"

#include <algorithm>
#include <array>

namespace plumb {
namespace {

class ShapeMaker {
  static constexpr std::int32_t none = -1;

 public:
  ShapeMaker(const Program& program, RankId rank, RankShape& shape)
      : program_(program),
        depth_(program.depth),
        routing_(program.routing),
        rank_(rank),
        shape_(shape),
        of_holding_(3, std::vector<std::int32_t>(program.routing.holdings.size(), none)),
        of_cut_(2, std::vector<std::int32_t>(static_cast<std::size_t>(program.layout.num_chunks()), none)),
        sum_of_(program.routing.holdings.size(), none),
        chunks_(program.layout.chunks_on(rank)),
        sources_(chunks_.size()),
        done_(2, std::vector<CellId>(chunks_.size(), no_cell)),
        received_(program.routing.transfers.size(), no_cell),
        sent_(program.routing.transfers.size(), no_cell) {}

  void make() {
    for (std::vector<CellId>& done : done_) {
      for (CellId& cell : done)
        cell = new_cell(CellKind::compute);
    }
    number_holdings();
    number_ends();
    for (std::size_t stage = 0; stage < chunks_.size(); ++stage) {
      shape_.forward.push_back(computation(stage, true));
      if (!program_.forward_only) shape_.backward.push_back(computation(stage, false));
    }
    for (std::size_t t = 0; t < routing_.transfers.size(); ++t) {
      if (shape_.end_of[2 * t] == none) continue;
      shape_.ends[static_cast<std::size_t>(shape_.end_of[2 * t])] = end(TransferId(t), Direction::forward);
      if (program_.forward_only) continue;
      shape_.ends[static_cast<std::size_t>(shape_.end_of[2 * t + 1])] = end(TransferId(t), Direction::backward);
    }
    count_sums();
    find_senders();
    find_last_computations();
    count_waits();
  }

 private:
  enum OfHolding : std::size_t { value, accumulator, arrived_sum };
  enum OfCut : std::size_t { partial, partial_gradient };

  const Holding& holding(HoldingId id) const { return routing_.holdings[id.index()]; }
  const Transfer& transfer(TransferId id) const { return routing_.transfers[id.index()]; }

  CellId new_cell(CellKind kind) {
    shape_.cell_kinds.push_back(kind);
    return shape_.num_cells++;
  }

  std::int32_t tenant_at(std::int32_t& number, SlotClass slot_class, bool many_users) {
    if (number == none) {
      number = static_cast<std::int32_t>(shape_.tenants.size());
      shape_.tenants.push_back({.slot_class = slot_class, .many_users = many_users});
    }
    return number;
  }
  std::int32_t tenant(OfHolding what, HoldingId id) {
    return tenant_at(of_holding_[what][id.index()], what == value ? SlotClass::value : SlotClass::gradient,
                     what == value);
  }
  std::int32_t tenant(OfCut what, ChunkId before) {
    return tenant_at(of_cut_[what][before.index()], what == partial ? SlotClass::value : SlotClass::gradient, false);
  }
  std::int32_t may_end(std::int32_t tenant) {
    ++shape_.tenants[static_cast<std::size_t>(tenant)].num_ends;
    return tenant;
  }

  std::size_t stage_of(ChunkId chunk) const { return program_.layout.virtual_stage_of(chunk).index(); }

  void number_holdings() {
    for (std::size_t h = 0; h < routing_.holdings.size(); ++h) {
      const Holding& here = routing_.holdings[h];
      if (here.rank != rank_) continue;
      for (const ChunkId reader : here.readers)
        sources_[stage_of(reader)].push_back(HoldingId(h));
      if (program_.forward_only) continue;
      sum_of_[h] = static_cast<std::int32_t>(shape_.sums.size());
      RankShape::Sum& sum = shape_.sums.emplace_back();
      sum.holding = HoldingId(h);
      sum.num_added = new_cell(CellKind::count);
      sum.last_add = new_cell(CellKind::comm);
      sum.zero = new_cell(CellKind::comm);
    }
    for (std::vector<HoldingId>& list : sources_) {
      std::sort(list.begin(), list.end(),
                [&](HoldingId a, HoldingId b) { return holding(a).block < holding(b).block; });
    }
  }

  void number_ends() {
    shape_.end_of.assign(2 * routing_.transfers.size(), none);
    for (std::size_t t = 0; t < routing_.transfers.size(); ++t) {
      const Transfer& here = routing_.transfers[t];
      if (here.from != rank_ && here.to != rank_) continue;
      for (std::size_t direction = 0; direction < (program_.forward_only ? 1U : 2U); ++direction) {
        shape_.end_of[2 * t + direction] = static_cast<std::int32_t>(shape_.ends.size());
        shape_.ends.emplace_back();
      }
      received_[t] = new_cell(CellKind::comm);  // forward on `to`, backward on `from`: a rank is only one of them
      sent_[t] = new_cell(CellKind::comm);
    }
  }

  // --- Computations ----------------------------------------------------------------------------------------------

  void operand(Role role, BlockId block, std::int32_t tenant, bool writes) {
    const bool accumulates = role == Role::grad_source || role == Role::grad_closed;
    shape_.operands.push_back({.role = role,
                               .accumulates = accumulates,
                               .may_open = accumulates || writes,
                               .block = block,
                               .tenant = tenant});
  }

  RankShape::Computation computation(std::size_t stage, bool forward) {
    const ChunkId chunk = chunks_[stage];
    const bool partial_in = chunk.value > 0 && depth_.partial_after(chunk.previous());
    const bool partial_out = chunk.value + 1 < program_.layout.num_chunks() && depth_.partial_after(chunk);
    const auto for_each_closed = [&](auto&& visit) {
      for (BlockId block = depth_.first_closed(chunk); block < depth_.end_closed(chunk); block = block.next())
        visit(block, routing_.root[block.index()]);
    };
    RankShape::Computation made;
    made.done = done_[forward ? 0 : 1][stage];
    made.operands.begin = size_of(shape_.operands);
    for (const HoldingId id : sources_[stage])
      operand(Role::source, holding(id).block, tenant(value, id), false);
    if (partial_in) operand(Role::partial_in, BlockId{}, tenant(partial, chunk.previous()), false);
    for_each_closed([&](BlockId block, HoldingId id) { operand(Role::closed, block, tenant(value, id), forward); });
    if (forward) {
      if (partial_out) operand(Role::partial_out, BlockId{}, tenant(partial, chunk), true);
    } else {
      if (partial_out) operand(Role::grad_partial_out, BlockId{}, tenant(partial_gradient, chunk), false);
      for_each_closed(
          [&](BlockId block, HoldingId id) { operand(Role::grad_closed, block, tenant(accumulator, id), false); });
      for (const HoldingId id : sources_[stage])
        operand(Role::grad_source, holding(id).block, tenant(accumulator, id), false);
      if (partial_in) operand(Role::grad_partial_in, BlockId{}, tenant(partial_gradient, chunk.previous()), true);
    }
    made.operands.end = size_of(shape_.operands);
    shape_.num_operands += made.operands.size();

    made.arrivals.begin = size_of(shape_.cells);
    if (forward) {
      for (const TransferId id : routing_.into_chunk[chunk.index()])
        shape_.cells.push_back(received_[id.index()]);
    } else {
      if (partial_out) {
        for (const TransferId id : routing_.into_chunk[chunk.next().index()]) {
          if (transfer(id).partial) shape_.cells.push_back(received_[id.index()]);
        }
      }
      for_each_closed([&](BlockId, HoldingId id) {
        if (!holding(id).children.empty()) shape_.cells.push_back(sum(id).last_add);
      });
    }
    made.arrivals.end = size_of(shape_.cells);

    made.completes.begin = size_of(shape_.sum_lists);
    for (std::size_t s = 0; s < shape_.sums.size() && !forward; ++s) {
      const Holding& here = holding(shape_.sums[s].holding);
      if (here.readers.empty() || here.readers.front() != chunk) continue;
      shape_.sums[s].own_done = made.done;
      if (!here.children.empty()) shape_.sum_lists.push_back(static_cast<std::int32_t>(s));
    }
    made.completes.end = size_of(shape_.sum_lists);
    return made;
  }

  // --- Messages --------------------------------------------------------------------------------------------------

  RankShape::Sum& sum(HoldingId id) { return shape_.sums[static_cast<std::size_t>(sum_of_[id.index()])]; }

  RankShape::End end(TransferId id, Direction direction) {
    const Transfer& here = transfer(id);
    const bool forward = direction == Direction::forward;
    RankShape::End made;
    made.sends = rank_ == (forward ? here.from : here.to);
    made.slot_class = forward ? SlotClass::value : SlotClass::gradient;
    made.lane = here.lane;
    made.peer = rank_ == here.from ? here.to : here.from;
    made.units = here.units();
    made.done = made.sends ? sent_[id.index()] : received_[id.index()];
    made.segments.begin = size_of(shape_.tenants_of);
    if (here.partial) {
      shape_.tenants_of.push_back(may_end(tenant(forward ? partial : partial_gradient, here.from_chunk)));
    }
    for (const HoldingId filled : here.holdings) {
      if (forward) {
        shape_.tenants_of.push_back(may_end(tenant(value, made.sends ? holding(filled).parent : filled)));
      } else {
        shape_.tenants_of.push_back(may_end(tenant(made.sends ? accumulator : arrived_sum, filled)));
      }
    }
    made.segments.end = size_of(shape_.tenants_of);
    ++shape_.num_comm_steps;
    shape_.num_segments += made.segments.size();
    if (made.sends) add_producers(here, forward, made);
    made.completes.begin = size_of(shape_.sum_lists);
    if (!forward && !made.sends) {
      for (const HoldingId filled : here.holdings)
        shape_.sum_lists.push_back(sum_of_[holding(filled).parent.index()]);
    }
    made.completes.end = size_of(shape_.sum_lists);
    return made;
  }

  void add_producers(const Transfer& here, bool forward, RankShape::End& made) {
    made.after_comm.begin = made.after_comm.end = size_of(shape_.cells);
    made.zeros.begin = made.zeros.end = size_of(shape_.sum_lists);
    if (forward) {
      if (here.after_arrival.value >= 0) {
        shape_.cells.push_back(received_[here.after_arrival.index()]);
      } else {
        made.after_compute = done_[0][stage_of(here.after_chunk)];
      }
    } else {
      made.after_compute = done_[1][stage_of(here.to_chunk)];
      for (const HoldingId filled : here.holdings) {
        shape_.cells.push_back(sum(filled).last_add);
        shape_.cells.push_back(sum(filled).zero);
        if (holding(filled).num_contributions() == 0) shape_.sum_lists.push_back(sum_of_[filled.index()]);
      }
    }
    made.after_comm.end = size_of(shape_.cells);
    made.zeros.end = size_of(shape_.sum_lists);
  }

  // --- Sums ------------------------------------------------------------------------------------------------------

  void count_sums() {
    for (RankShape::Sum& here : shape_.sums) {
      const Holding& of = holding(here.holding);
      here.children.begin = here.children.end = size_of(shape_.children);
      here.accumulator = tenant(accumulator, here.holding);
      for (const HoldingId child : of.children) {
        may_end(here.accumulator);
        shape_.children.push_back({.holding = child,
                                   .received = received_[holding(child).transfer.index()],
                                   .arrived = may_end(tenant(arrived_sum, child))});
        ++shape_.num_comm_steps;
        shape_.num_segments += 2;
      }
      here.children.end = size_of(shape_.children);
      if (!of.is_root() && of.num_contributions() == 0) {
        may_end(here.accumulator);
        ++shape_.num_comm_steps;
        ++shape_.num_segments;
      }
    }
  }

  void find_senders() {
    for (std::size_t h = 0; h < routing_.holdings.size(); ++h) {
      const std::int32_t number = of_holding_[value][h];
      if (number == none || routing_.holdings[h].rank != rank_) continue;
      Range& sends = shape_.tenants[static_cast<std::size_t>(number)].sends;
      sends.begin = size_of(shape_.cells);
      for (const HoldingId child : routing_.holdings[h].children)
        shape_.cells.push_back(sent_[holding(child).transfer.index()]);
      sends.end = size_of(shape_.cells);
    }
  }

  // Whatever the schedule, a microbatch goes up the chunks and then down again, so that one computation is the last to
  // touch a tenant. Within it the last operand counts.
  void find_last_computations() {
    std::vector<bool> seen(shape_.tenants.size(), false);
    const auto look_at = [&](RankShape::Computation& computation) {
      computation.ends.begin = size_of(shape_.tenants_of);
      for (std::uint32_t i = computation.operands.end; i-- > computation.operands.begin;) {
        const std::int32_t tenant = shape_.operands[i].tenant;
        if (seen[static_cast<std::size_t>(tenant)]) continue;
        seen[static_cast<std::size_t>(tenant)] = true;
        shape_.tenants[static_cast<std::size_t>(tenant)].last_compute = computation.done;
        shape_.tenants_of.push_back(may_end(tenant));
      }
      computation.ends.end = size_of(shape_.tenants_of);
      std::reverse(shape_.tenants_of.begin() + computation.ends.begin, shape_.tenants_of.end());
    };
    for (RankShape::Computation& computation : shape_.backward)
      look_at(computation);
    for (auto computation = shape_.forward.rbegin(); computation != shape_.forward.rend(); ++computation)
      look_at(*computation);
  }

  void count_waits() {
    std::size_t most_users = 1;
    std::size_t released = 0;
    for (const RankShape::Tenant& tenant : shape_.tenants) {
      if (!tenant.many_users) continue;
      released += tenant.sends.size() + 1;
      most_users = std::max<std::size_t>(most_users, tenant.sends.size() + 1);
    }
    for (const auto* list : {&shape_.forward, &shape_.backward}) {
      for (const RankShape::Computation& computation : *list)
        shape_.most_waits += computation.arrivals.size();
    }
    for (const RankShape::End& end : shape_.ends)
      shape_.most_waits += end.sends ? end.after_comm.size() + 1U : 0U;
    shape_.most_waits += 3 * shape_.children.size() + most_users * shape_.tenants.size() + released;
  }

  const Program& program_;
  const DepthMap& depth_;
  const Routing& routing_;
  RankId rank_;
  RankShape& shape_;
  std::vector<std::vector<std::int32_t>> of_holding_;  // [what][holding]: tenant
  std::vector<std::vector<std::int32_t>> of_cut_;      // [what][chunk before it]
  std::vector<std::int32_t> sum_of_;                   // [holding]
  std::vector<ChunkId> chunks_;                        // [virtual stage]
  std::vector<std::vector<HoldingId>> sources_;        // [virtual stage], ascending by block
  std::vector<std::vector<CellId>> done_;              // [backward][virtual stage]
  std::vector<CellId> received_;                       // [transfer]
  std::vector<CellId> sent_;                           // [transfer]
};

}  // namespace

RankShape::RankShape(const Program& program, RankId rank) {
  ShapeMaker(program, rank, *this).make();
  // The tenants' cells lie in front of the others.
  const auto shift = static_cast<CellId>(tenants.size()) * cells_per_tenant;
  const auto move = [shift](CellId& cell) {
    if (cell != no_cell) cell += shift;
  };
  for (CellId& cell : cells)
    move(cell);
  for (std::vector<Computation>* list : {&forward, &backward}) {
    for (Computation& computation : *list)
      move(computation.done);
  }
  for (End& end : ends) {
    move(end.after_compute);
    move(end.done);
  }
  for (Tenant& tenant : tenants)
    move(tenant.last_compute);
  for (Child& child : children)
    move(child.received);
  for (Sum& sum : sums) {
    for (CellId* cell : {&sum.own_done, &sum.num_added, &sum.last_add, &sum.zero})
      move(*cell);
  }
  num_cells += shift;
  std::vector<CellKind> kinds;
  for (const Tenant& tenant : tenants) {
    kinds.push_back(tenant.slot_class == SlotClass::value ? CellKind::value_slot : CellKind::gradient_slot);
    kinds.push_back(CellKind::count);
  }
  cell_kinds.insert(cell_kinds.begin(), kinds.begin(), kinds.end());
}

}  // namespace plumb
