// SPDX-License-Identifier: Apache-2.0
#include "comms_faults.hpp"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "comms_tables.hpp"

namespace plumb {
namespace {

// The table takes memory by the layout, not by the schedule; with so little in it check_schedule has said enough.
constexpr std::size_t max_unfilled = 4096;

// What a rank has met of one (chunk, microbatch).
using Events = std::uint16_t;
constexpr Events forward_ran = 1 << 7;
constexpr Events backward_ran = 1 << 8;
Events bit(CommOp op) { return static_cast<Events>(1U << static_cast<unsigned>(op)); }

class Finder {
 public:
  Finder(const CommsSchedule& schedule, std::size_t max_faults)
      : schedule_(schedule),
        layout_(schedule.layout),
        max_faults_(max_faults),
        everywhere_(schedule.layout, 0),
        before_(schedule.layout, 0),
        used_(static_cast<std::size_t>(schedule.layout.num_chunks()), false),
        parameters_(used_.size()) {}

  // Fills what is about communication.
  void run(CommsFaults& found) {
    note_everything();
    if (!any_message_ && layout_.pp() > 1) {
      add(RankId(), 0, "",
          "no SEND and no RECV in the whole file; without UNSHARD, RESHARD and REDUCE_GRAD it is read "
          "as a schedule of computations only");
    } else {
      find_empty_hops(found);
    }
    for (RankId rank; rank.index() < schedule_.ranks.size(); rank = rank.next()) {
      const std::vector<CommsItem>& items = schedule_.ranks[rank.index()];
      for (std::size_t column = 0; column < items.size() && !full(); ++column) {
        if (const Action* action = std::get_if<Action>(&items[column])) {
          check_action(rank, column, *action);
        } else {
          check_comm(rank, column, std::get<CommAction>(items[column]));
        }
      }
    }
    found.can_be_run = sound_ && any_message_or_one_rank();
    found.faults.insert(found.faults.end(), faults_.begin(), faults_.end());
  }

 private:
  bool full() const { return faults_.size() >= max_faults_; }
  bool any_message_or_one_rank() const { return any_message_ || layout_.pp() == 1; }

  void add(RankId rank, std::size_t column, std::string token, std::string why) {
    if (!full()) faults_.push_back({rank, column, std::move(token), std::move(why)});
  }

  // --- First pass: what exists at all, and on which hops
  // ---------------------------------------------------------------

  bool in_place(RankId rank, const CommAction& comm) const {
    return layout_.rank_of(comm.chunk) == rank && (!moves_data(comm.op) || crosses(layout_, hop_of(comm).before));
  }

  void note_everything() {
    for (RankId rank; rank.index() < schedule_.ranks.size(); rank = rank.next()) {
      for (const CommsItem& item : schedule_.ranks[rank.index()]) {
        const CommAction* comm = std::get_if<CommAction>(&item);
        if (comm == nullptr || !moves_data(comm->op)) continue;
        any_message_ = true;
        if (!in_place(rank, *comm)) continue;
        Events& events = everywhere_.at(comm->chunk, comm->microbatch);
        events = static_cast<Events>(events | bit(comm->op));
        used_[hop_of(*comm).before.index()] = true;
      }
    }
  }

  // A block reaches each rank once, and the first chunk of a rank always lacks the embedding, so only hops into a
  // rank's later chunks can be empty.
  void find_empty_hops(CommsFaults& found) {
    for (ChunkId before; before.value + 1 < layout_.num_chunks(); before = before.next()) {
      if (!crosses(layout_, before) || used_[before.index()]) continue;
      if (layout_.virtual_stage_of(before.next()).value > 0) {
        found.empty_hops.push_back(before);
      } else {
        used_[before.index()] = true;  // so that every missing receive is named
      }
    }
  }

  // --- Second pass: each item against what stands before it
  // --------------------------------------------------------------

  void check_action(RankId rank, std::size_t column, const Action& action) {
    // Both halves of a pair start together.
    for_each_compute(action, [&](const Compute& compute) { check_input(rank, column, compute); });
    for_each_compute(action, [&](const Compute& compute) {
      if (compute.op == Op::backward_weight) return;
      Events& before = before_.at(compute.chunk, compute.microbatch);
      before = static_cast<Events>(before | (compute.op == Op::forward ? forward_ran : backward_ran));
    });
  }

  void check_input(RankId rank, std::size_t column, const Compute& compute) {
    const auto [op, chunk, m] = compute;
    const Parameters& parameters = parameters_[chunk.index()];
    if (op != Op::backward_weight && parameters.sharding == Sharding::sharded) {
      add(rank, column, to_string(compute),
          fmt::format("stands after {}RESHARD: its parameters are not whole", chunk.value));
    }
    if (parameters.reduced && (op == Op::backward || op == Op::backward_weight)) {
      add(rank, column, to_string(compute),
          fmt::format("stands after {}REDUCE_GRAD: its gradient would be lost", chunk.value));
    }
    if (op == Op::backward_weight) return;
    const CommOp receive = op == Op::forward ? CommOp::receive_forward : CommOp::receive_backward;
    const CommAction needed{receive, chunk, m};
    const ChunkId hop = hop_of(needed).before;
    if (!crosses(layout_, hop) || !used_[hop.index()]) return;
    if ((before_.at(chunk, m) & bit(receive)) != 0) return;
    add(rank, column, to_string(compute),
        fmt::format("its input has not been received: {} {}", to_string(needed),
                    (everywhere_.at(chunk, m) & bit(receive)) != 0 ? "stands after it" : "is missing"));
  }

  void check_comm(RankId rank, std::size_t column, const CommAction& comm) {
    const auto fault = [&](std::string why) { add(rank, column, to_string(comm), std::move(why)); };
    const RankId owner = layout_.rank_of(comm.chunk);
    if (owner != rank) {
      sound_ = false;
      return fault(fmt::format("chunk {} belongs to rank {} in placement {}", comm.chunk.value, owner.value,
                               to_string(layout_.placement())));
    }
    if (!moves_data(comm.op)) return check_parameters(comm, fault);
    const ChunkId hop = hop_of(comm).before;
    if (hop.value < 0) {
      sound_ = false;
      return fault(fmt::format("chunk {} is the first: nothing lies before it", comm.chunk.value));
    }
    if (hop.value + 1 == layout_.num_chunks()) {
      sound_ = false;
      return fault(fmt::format("chunk {} is the last: nothing lies behind it", comm.chunk.value));
    }
    const CommAction partner = partner_of(comm);
    if (!crosses(layout_, hop)) {
      sound_ = false;
      return fault(fmt::format("chunks {} and {} are both on rank {}: nothing is sent between them", hop.value,
                               hop.value + 1, rank.value));
    }
    if (schedule_.forward_only && !is_forward(comm.op)) {
      sound_ = false;
      return fault("moves a gradient, but no backward runs at all");
    }
    Events& before = before_.at(comm.chunk, comm.microbatch);
    if ((before & bit(comm.op)) != 0) {
      sound_ = false;
      return fault("is there a second time");
    }
    before = static_cast<Events>(before | bit(comm.op));
    if ((everywhere_.at(partner.chunk, partner.microbatch) & bit(partner.op)) == 0) {
      fault(fmt::format("nobody {} it: rank {} has no {}", is_send(comm.op) ? "receives" : "sends",
                        layout_.rank_of(partner.chunk).value, to_string(partner)));
    }
    if (!is_send(comm.op)) return;
    const bool forward = comm.op == CommOp::send_forward;
    if ((before & (forward ? forward_ran : backward_ran)) == 0) {
      fault(
          fmt::format("what it sends does not exist yet: the {} of chunk {} and microbatch {} does not stand before it",
                      forward ? "forward" : "backward", comm.chunk.value, comm.microbatch.value));
    }
  }

  // Only the order is checked, and only where a file names them: a model without sharded parameters needs none.
  template <class Fault>
  void check_parameters(const CommAction& comm, const Fault& fault) {
    Parameters& parameters = parameters_[comm.chunk.index()];
    switch (comm.op) {
      case CommOp::unshard:
        if (parameters.sharding == Sharding::whole) fault("is there a second time without a RESHARD between");
        parameters.sharding = Sharding::whole;
        break;
      case CommOp::reshard:
        if (parameters.sharding == Sharding::sharded) fault("is there a second time without an UNSHARD between");
        parameters.sharding = Sharding::sharded;
        break;
      default:
        if (parameters.reduced) fault("is there a second time");
        parameters.reduced = true;
    }
  }

  enum class Sharding : std::uint8_t { unknown, whole, sharded };
  struct Parameters {
    Sharding sharding = Sharding::unknown;
    bool reduced = false;
  };

  const CommsSchedule& schedule_;
  const Layout& layout_;
  std::size_t max_faults_;
  std::vector<ScheduleFault> faults_;
  PerCompute<Events> everywhere_;
  PerCompute<Events> before_;
  std::vector<bool> used_;  // [chunk]: the hop behind it must carry a message per microbatch and direction
  std::vector<Parameters> parameters_;
  bool any_message_ = false;
  bool sound_ = true;
};

// From a position among the computations to one among all items.
void place_in_file(const CommsSchedule& schedule, std::vector<ScheduleFault>& faults) {
  for (ScheduleFault& fault : faults) {
    if (fault.rank.index() >= schedule.ranks.size()) continue;
    const std::vector<CommsItem>& items = schedule.ranks[fault.rank.index()];
    std::size_t column = 0;
    std::size_t computes_before = fault.column;
    for (; column < items.size(); ++column) {
      if (!std::holds_alternative<Action>(items[column])) continue;
      if (computes_before == 0) break;
      --computes_before;
    }
    fault.column = fault.token.empty() ? 0 : column;
  }
}

// A number that the layout does not have; the computations' own are check_schedule's to name.
bool all_within(const CommsSchedule& schedule, std::vector<ScheduleFault>& faults) {
  const Layout& layout = schedule.layout;
  const auto within = [&](ChunkId chunk, Microbatch m) {
    return chunk.value >= 0 && chunk.value < layout.num_chunks() && m.value >= 0 && m.value < layout.microbatches();
  };
  bool good = schedule.ranks.size() == static_cast<std::size_t>(layout.pp());
  for (RankId rank; rank.index() < schedule.ranks.size(); rank = rank.next()) {
    const std::vector<CommsItem>& items = schedule.ranks[rank.index()];
    for (std::size_t column = 0; column < items.size(); ++column) {
      if (const Action* action = std::get_if<Action>(&items[column])) {
        for_each_compute(*action, [&](const Compute& c) { good = good && within(c.chunk, c.microbatch); });
      } else if (const CommAction& comm = std::get<CommAction>(items[column]); !within(comm.chunk, comm.microbatch)) {
        good = false;
        faults.push_back({rank, column, to_string(comm), "there is no such chunk or microbatch in the layout"});
      }
    }
  }
  return good;
}

}  // namespace

CommsFaults find_comms_faults(const CommsSchedule& schedule, std::size_t max_faults) {
  CommsFaults found;
  const Schedule computations = computations_of(schedule);
  ScheduleCheck check = check_schedule(computations, max_faults);
  found.faults = std::move(check.faults);
  found.cycle = std::move(check.cycle);
  place_in_file(schedule, found.faults);
  place_in_file(schedule, found.cycle);
  const bool legal = found.faults.empty() && found.cycle.empty();
  const auto table =
      static_cast<std::size_t>(schedule.layout.num_chunks()) * static_cast<std::size_t>(schedule.layout.microbatches());
  std::size_t num_items = 0;
  for (const auto& items : schedule.ranks) {
    num_items += items.size();
  }
  if (table <= 2 * num_items + max_unfilled && all_within(schedule, found.faults)) {
    Finder(schedule, max_faults).run(found);
  }
  found.can_be_run = found.can_be_run && legal;
  std::stable_sort(found.faults.begin(), found.faults.end(), [](const ScheduleFault& a, const ScheduleFault& b) {
    return std::tie(a.rank, a.column) < std::tie(b.rank, b.column);
  });
  if (found.faults.size() > max_faults) found.faults.resize(max_faults);
  return found;
}

}  // namespace plumb
