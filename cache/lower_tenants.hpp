// SPDX-License-Identifier: Apache-2.0
//
// lower_tenants.hpp (private): what a step of one rank touches, before anything has a slot.
//
// A tenant is something that occupies a slot for a while. Its life, from its first write (or the post of its receive)
// to its last user in the common order:
//   value of a holding       closing or receive   -> last F, B or send that reads it
//   partial of a cut         F or receive         -> B of the reading chunk, or the send
//   accumulator of a holding first contribution   -> send to the parent, or B of the closing chunk
//   arrived sum of a child   receive              -> its add
//   gradient of a partial    B or receive         -> send, or B of the chunk before the cut
#pragma once

#include <cstdint>
#include <vector>

#include "plumb/cache/program.hpp"

namespace plumb {

enum class Tenancy : std::uint8_t { value, partial, accumulator, arrived_sum, partial_gradient };
inline constexpr std::size_t num_tenancies = 5;

SlotClass slot_class(Tenancy tenancy);

struct Tenant {
  Tenancy tenancy = Tenancy::value;
  std::size_t row = 0;  // the rank's own number of the holding, or of the cut
  Microbatch microbatch;
};

// What a chunk reads and closes, the same for every microbatch.
struct ChunkShape {
  std::vector<HoldingId> sources;  // ascending by block
  std::vector<HoldingId> closed;
  bool partial_in = false;
  bool partial_out = false;
};

std::vector<ChunkShape> chunk_shapes(const Program& program);

class RankTenants {
 public:
  RankTenants(const Program& program, const std::vector<ChunkShape>& shapes, RankId rank);

  std::size_t num_rows() const { return holding_of_row_.size(); }
  HoldingId holding_of_row(std::size_t row) const { return holding_of_row_[row]; }  // -1 for a cut
  std::size_t row_of(HoldingId id) const { return static_cast<std::size_t>(row_of_holding_[id.index()]); }

  // visit(Role, BlockId, Tenant) for everything a computation touches, in operand order.
  template <class Visit>
  void for_each_operand(const Compute& compute, Visit&& visit) const;

  // visit(Tenant) for the segments of a communication step in wire order; for add the accumulator, then the arrived
  // sum.
  template <class Visit>
  void for_each_segment(const CommStep& step, Visit&& visit) const;

 private:
  void number(HoldingId id);
  void number_cut(ChunkId before);
  Tenant of_holding(Tenancy tenancy, HoldingId id, Microbatch m) const { return {tenancy, row_of(id), m}; }
  Tenant of_cut(Tenancy tenancy, ChunkId before, Microbatch m) const {
    return {tenancy, static_cast<std::size_t>(row_of_cut_[before.index()]), m};
  }

  const Program& program_;
  const std::vector<ChunkShape>& shapes_;
  std::vector<std::int32_t> row_of_holding_;
  std::vector<std::int32_t> row_of_cut_;
  std::vector<HoldingId> holding_of_row_;
};

template <class Visit>
void RankTenants::for_each_operand(const Compute& compute, Visit&& visit) const {
  if (compute.op == Op::backward_weight) {
    return;  // W reads no block
  }
  const ChunkShape& shape = shapes_[compute.chunk.index()];
  const Microbatch m = compute.microbatch;
  const auto block_of = [&](HoldingId id) { return program_.routing.holdings[id.index()].block; };
  for (const HoldingId id : shape.sources) {
    visit(Role::source, block_of(id), of_holding(Tenancy::value, id, m));
  }
  if (shape.partial_in) {
    visit(Role::partial_in, BlockId{}, of_cut(Tenancy::partial, compute.chunk.previous(), m));
  }
  for (const HoldingId id : shape.closed) {
    visit(Role::closed, block_of(id), of_holding(Tenancy::value, id, m));
  }
  if (compute.op == Op::forward) {
    if (shape.partial_out) {
      visit(Role::partial_out, BlockId{}, of_cut(Tenancy::partial, compute.chunk, m));
    }
    return;
  }
  if (shape.partial_out) {
    visit(Role::grad_partial_out, BlockId{}, of_cut(Tenancy::partial_gradient, compute.chunk, m));
  }
  for (const HoldingId id : shape.closed) {
    visit(Role::grad_closed, block_of(id), of_holding(Tenancy::accumulator, id, m));
  }
  for (const HoldingId id : shape.sources) {
    visit(Role::grad_source, block_of(id), of_holding(Tenancy::accumulator, id, m));
  }
  if (shape.partial_in) {
    visit(Role::grad_partial_in, BlockId{}, of_cut(Tenancy::partial_gradient, compute.chunk.previous(), m));
  }
}

template <class Visit>
void RankTenants::for_each_segment(const CommStep& step, Visit&& visit) const {
  const Message& message = program_.messages[step.message.index()];
  const Microbatch m = message.microbatch;
  if (step.kind == CommKind::zero) {
    visit(of_holding(Tenancy::accumulator, step.holding, m));
    return;
  }
  if (step.kind == CommKind::add) {
    visit(of_holding(Tenancy::accumulator, program_.routing.holdings[step.holding.index()].parent, m));
    visit(of_holding(Tenancy::arrived_sum, step.holding, m));
    return;
  }
  const Transfer& transfer = program_.routing.transfers[message.transfer.index()];
  const bool forward = message.direction == Direction::forward;
  if (transfer.partial) {
    visit(of_cut(forward ? Tenancy::partial : Tenancy::partial_gradient, transfer.from_chunk, m));
  }
  for (const HoldingId id : transfer.holdings) {
    const bool sends = step.kind == CommKind::send;
    if (forward) {
      visit(of_holding(Tenancy::value, sends ? program_.routing.holdings[id.index()].parent : id, m));
    } else {
      visit(of_holding(sends ? Tenancy::accumulator : Tenancy::arrived_sum, id, m));
    }
  }
}

}  // namespace plumb
