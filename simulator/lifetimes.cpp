// SPDX-License-Identifier: Apache-2.0
#include "lifetimes.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "plumb/schedule/invariant.hpp"

namespace plumb {
namespace {

Occupant occupant_of(Role role) {
  switch (role) {
    case Role::source:
    case Role::closed:
      return Occupant::block;
    case Role::partial_in:
    case Role::partial_out:
      return Occupant::partial;
    case Role::grad_closed:
    case Role::grad_source:
      return Occupant::gradient;
    case Role::grad_partial_in:
    case Role::grad_partial_out:
      break;
  }
  return Occupant::passing_gradient;
}

class SlotFollower {
 public:
  SlotFollower(const Program& program, const Timeline& timeline, RankId rank)
      : program_(program),
        steps_(program.ranks[rank.index()]),
        timeline_(timeline),
        times_(timeline.ranks[rank.index()]),
        rank_(rank) {
    occupied_[0].resize(static_cast<std::size_t>(steps_.num_value_slots));
    occupied_[1].resize(static_cast<std::size_t>(steps_.num_gradient_slots));
  }

  std::vector<Lifetime> run() {
    for (const StepRef step : steps_.order) {
      const auto index = static_cast<std::size_t>(step.index);
      if (step.comm) {
        const CommStep& comm = steps_.comm[index];
        occupy_segments(comm, index);
        release(comm.releases, times_.comm_done[index]);
      } else {
        const ComputeStep& compute = steps_.compute[index];
        for (const Operand& operand : steps_.operands_of(compute.operands)) {
          const SimTime start = times_.compute[index].start;
          occupy(slot_of(operand), {occupant_of(operand.role), start, start, times_.compute[index].end, start});
        }
        release(compute.releases, times_.compute[index].end);
        ++num_computes_;
      }
    }
    return std::move(lifetimes_);
  }

 private:
  struct Here {
    bool occupied = false;
    Lifetime life;
  };

  // A receive occupies its slots before the message starts.
  SimTime start_of(const CommStep& comm, std::size_t index) const {
    if (comm.kind != CommKind::receive) return times_.comm_done[index];
    const MessageTimes& message = timeline_.messages[comm.message.index()];
    const std::int32_t ahead = num_computes_ - program_.post_ahead;
    const auto clamped = static_cast<std::size_t>(std::max(ahead, 0));
    const SimTime earliest = ahead < 0                         ? SimTime(0)
                             : clamped < steps_.compute.size() ? times_.compute[clamped].start
                                                               : message.start;
    // An eager message may start before: until the slot is free it lies with the transport.
    return std::max(message.posted, std::min(message.start, std::max(message.posted, earliest)));
  }

  void occupy_segments(const CommStep& comm, std::size_t index) {
    const SimTime start = start_of(comm, index);
    const SimTime done = times_.comm_done[index];
    const bool is_receive = comm.kind == CommKind::receive;
    bool is_partial = is_receive && program_.transfer_of(comm.message).partial;  // it is the first segment
    for (const Slot& slot : steps_.segments_of(comm.segments)) {
      Occupant what = is_receive ? Occupant::passing_gradient : Occupant::gradient;
      if (slot.slot_class == SlotClass::value) what = is_partial ? Occupant::partial : Occupant::block;
      occupy(slot, {what, start, done, comm.kind == CommKind::send ? SimTime(0) : done, start});
      is_partial = false;
    }
  }

  Here& here(const Slot& slot) {
    return occupied_[static_cast<std::size_t>(slot.slot_class)][static_cast<std::size_t>(slot.index)];
  }

  // The first step that names a slot; those after it use what is there.
  void occupy(const Slot& slot, const Lifetime& life) {
    Here& place = here(slot);
    if (place.occupied) {
      place.life.used = std::max(place.life.used, life.used);
    } else {
      place = {true, life};
    }
  }

  void release(Range releases, SimTime done) {
    for (const Release& release : steps_.releases_of(releases)) {
      Here& gone = here(release.slot);
      Lifetime life = gone.life;
      life.end = done;
      for (const Wait& user : steps_.waits_of(release.waits))
        life.end = std::max(life.end, timeline_.finished(rank_, user));
      require(gone.occupied && life.since <= life.end, [&] {
        return fmt::format("rank {}: slot {} is released at {} ps, occupied since {} ps", rank_.value,
                           release.slot.index, life.end.count(), life.since.count());
      });
      life.filled = std::min(life.filled, life.end);
      life.used = std::min(std::max(life.used, life.filled), life.end);
      lifetimes_.push_back(life);
      gone.occupied = false;
    }
  }

  const Program& program_;
  const RankProgram& steps_;
  const Timeline& timeline_;
  const RankTimeline& times_;
  RankId rank_;
  std::array<std::vector<Here>, 2> occupied_;  // [class][slot]
  std::int32_t num_computes_ = 0;              // walked so far
  std::vector<Lifetime> lifetimes_;
};

}  // namespace

std::vector<Lifetime> slot_lifetimes(const Program& program, const Timeline& timeline, RankId rank) {
  return SlotFollower(program, timeline, rank).run();
}

std::vector<ActivationChange> activation_changes(const Program& program, const Timeline& timeline, RankId rank) {
  std::vector<ActivationChange> changes;
  const RankProgram& steps = program.ranks[rank.index()];
  for (std::size_t i = 0; i < steps.compute.size(); ++i) {
    const Compute& compute = steps.compute[i].compute;
    const ComputeTimes& times = timeline.ranks[rank.index()].compute[i];
    const bool forward = compute.op == Op::forward;
    if (forward) changes.push_back({times.start, compute.chunk, 1});
    if (forward ? program.forward_only : compute.op != Op::backward_input) {
      changes.push_back({times.end, compute.chunk, -1});
    }
  }
  return changes;
}

}  // namespace plumb
