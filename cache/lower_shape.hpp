// SPDX-License-Identifier: Apache-2.0
//
// lower_shape.hpp (private): what one rank touches in any microbatch, worked out once.
//
// A tenant is something that occupies a slot for a while. Its life, from its first write (or the post of its receive)
// to its last user in the common order:
//   value of a holding       closing or receive   -> last F, B or send that reads it
//   partial of a cut         F or receive         -> B of the reading chunk, or the send
//   accumulator of a holding first contribution   -> send to the parent, or B of the closing chunk
//   arrived sum of a child   receive              -> its add
//   gradient of a partial    B or receive         -> send, or B of the chunk before the cut
// What happens to a microbatch is written into a row of cells, one step index or slot each; a shape says which cells.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumb/cache/program.hpp"

namespace plumb {

using CellId = std::int32_t;  // within the row of a microbatch
inline constexpr CellId no_cell = -1;

// As the index of a Range.
template <class T>
std::uint32_t size_of(const std::vector<T>& list) {
  return static_cast<std::uint32_t>(list.size());
}

// What is written into a cell: the slot of a tenant, a number of things done, or the index of a step.
enum class CellKind : std::uint8_t { value_slot, gradient_slot, count, compute, comm };

struct RankShape {
  struct Tenant {
    SlotClass slot_class = SlotClass::value;
    std::int32_t num_ends = 0;      // steps that may be its last user: communication, and the last computation
    bool many_users = false;        // a value of a holding: its users do not follow each other
    Range sends{};                  // in `cells`: the sends that read such a value
    CellId last_compute = no_cell;  // the last computation that touches it, in any order: F up, then B down the chunks
  };
  // A tenant's cells: its slot, and how many of those steps have come.
  static constexpr CellId cells_per_tenant = 2;

  struct Operand {
    Role role = Role::source;
    bool accumulates = false;
    bool may_open = false;  // it need not hold anything before
    BlockId block{};
    std::int32_t tenant = 0;
  };
  struct Computation {
    Range operands{};
    Range ends{};       // in `tenants_of`: what no later computation touches
    Range arrivals{};   // in `cells`: communication steps it waits for
    Range completes{};  // in `sums`: what its backward adds the last own contribution to
    CellId done = no_cell;
  };
  struct End {
    bool sends = false;
    SlotClass slot_class = SlotClass::value;
    MessageLane lane = MessageLane::urgent;
    RankId peer{};
    std::int32_t units = 0;
    Range segments{};                // in `tenants_of`
    CellId after_compute = no_cell;  // a send's producer
    Range after_comm{};              // in `cells`: the same; cells may be empty
    Range zeros{};                   // in `sums`: sums that nothing contributes to, before they are sent
    Range completes{};               // in `sums`: what an arrival may be added to
    CellId done = no_cell;
  };
  // The gradient sum of a holding of this rank.
  struct Child {
    HoldingId holding{};
    CellId received = no_cell;
    std::int32_t arrived = 0;  // tenant
  };
  struct Sum {
    HoldingId holding{};
    std::int32_t accumulator = 0;  // tenant
    CellId own_done = no_cell;     // the computation that adds this rank's last contribution, if it has any
    Range children{};
    CellId num_added = no_cell;
    CellId last_add = no_cell;
    CellId zero = no_cell;
  };

  RankShape(const Program& program, RankId rank);

  std::vector<Tenant> tenants;
  std::vector<Computation> forward;   // [virtual stage]
  std::vector<Computation> backward;  // B or I; W touches nothing
  std::vector<End> ends;
  std::vector<std::int32_t> end_of;  // [transfer][direction]: in `ends`
  std::vector<Sum> sums;
  std::vector<Child> children;
  std::vector<Operand> operands;
  std::vector<std::int32_t> tenants_of;
  std::vector<CellId> cells;
  std::vector<std::int32_t> sum_lists;  // in `sums`
  CellId num_cells = 0;
  std::vector<CellKind> cell_kinds;  // [cell]

  // Per microbatch, to reserve exactly.
  std::size_t num_comm_steps = 0;
  std::size_t num_operands = 0;
  std::size_t num_segments = 0;
  std::size_t most_waits = 0;  // bound: each slot may have had any former users
};

}  // namespace plumb
