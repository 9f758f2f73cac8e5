// SPDX-License-Identifier: Apache-2.0
#include "deadlock_order.hpp"

#include <vector>

#include "prefetch.hpp"

namespace plumb {
namespace {

// What a step may wait for at its place in the order: the steps before it.
struct Before {
  std::int32_t computes = 0;
  std::int32_t comms = 0;

  bool all(std::span<const Wait> waits) const {
    for (const Wait& wait : waits) {
      if (wait.step >= (wait.on == Wait::On::compute ? computes : comms)) return false;
    }
    return true;
  }
};

struct HopEnds {
  RankId from;
  RankId to;
  MessageLane lane;
};

bool is_end_of(const CommStep& comm, RankId rank, const HopEnds& hop, Direction direction) {
  const bool from_here = (comm.kind == CommKind::send) == (direction == Direction::forward);
  return rank == (from_here ? hop.from : hop.to) && comm.peer == (from_here ? hop.to : hop.from) &&
         comm.lane == hop.lane;
}

}  // namespace

bool follows_one_order(const Program& program) {
  std::vector<HopEnds> hops;
  hops.reserve(program.routing.transfers.size());
  for (const Transfer& transfer : program.routing.transfers) {
    if (transfer.from == transfer.to) return false;
    hops.push_back({transfer.from, transfer.to, transfer.lane});
  }
  std::size_t num_ends = 0;
  for (RankId rank; rank.index() < program.ranks.size(); rank = rank.next()) {
    const RankProgram& steps = program.ranks[rank.index()];
    Before before;
    MessageId last{-1};
    for (const StepRef& step : steps.order) {
      const auto index = static_cast<std::size_t>(step.index);
      if (!step.comm) {
        if (!before.all(steps.waits_of(steps.compute[index].waits))) return false;
        ++before.computes;
        continue;
      }
      prefetch_message(program, steps, index);
      const CommStep& comm = steps.comm[index];
      if (!before.all(steps.waits_of(comm.waits))) return false;
      ++before.comms;
      if (comm.kind != CommKind::send && comm.kind != CommKind::receive) continue;
      const Message& message = program.messages[comm.message.index()];
      if (comm.message <= last || !is_end_of(comm, rank, hops[message.transfer.index()], message.direction)) {
        return false;
      }
      last = comm.message;
      ++num_ends;
    }
  }
  // No message twice on a rank, and each end on a rank of its own: so there are two of each exactly if there are so
  // many.
  return num_ends == 2 * program.messages.size();
}

}  // namespace plumb
