// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/memory.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "plumb/schedule/invariant.hpp"

namespace plumb {
namespace {

using Count = std::int32_t Resident::*;

struct Change {
  SimTime at;
  Count count;
  std::int32_t by;
};

struct Occupant {
  SimTime since;
  Count count = nullptr;  // null: the slot is free
};

Count count_of(Role role) {
  switch (role) {
    case Role::source:
    case Role::closed:
      return &Resident::block_units;
    case Role::partial_in:
    case Role::partial_out:
      return &Resident::partial_units;
    case Role::grad_closed:
    case Role::grad_source:
      return &Resident::gradient_units;
    case Role::grad_partial_in:
    case Role::grad_partial_out:
      break;
  }
  return &Resident::passing_gradient_units;
}

// Follows every slot of one rank along its order: it becomes occupied by the first step that names it, and free again
// at the release record of the occupant's last user.
class Lifetimes {
 public:
  Lifetimes(const Program& program, const Timeline& timeline, RankId rank)
      : program_(program),
        rank_program_(program.ranks[rank.index()]),
        timeline_(timeline),
        times_(timeline.ranks[rank.index()]),
        rank_(rank) {
    occupants_[0].resize(static_cast<std::size_t>(rank_program_.num_value_slots));
    occupants_[1].resize(static_cast<std::size_t>(rank_program_.num_gradient_slots));
  }

  std::vector<Change> changes() {
    for (const StepRef step : rank_program_.order) {
      const auto index = static_cast<std::size_t>(step.index);
      if (step.comm) {
        const CommStep& comm = rank_program_.comm[index];
        occupy_segments(comm, start_of(comm, index));
        release(comm.releases, times_.comm_done[index]);
      } else {
        const ComputeStep& compute = rank_program_.compute[index];
        for (const Operand& operand : rank_program_.operands_of(compute.operands)) {
          occupy(slot_of(operand), times_.compute[index].start, count_of(operand.role));
        }
        release(compute.releases, times_.compute[index].end);
        count_activation(compute.compute, times_.compute[index]);
        ++num_computes_;
      }
    }
    return std::move(changes_);
  }

 private:
  // A receive occupies its slots before the message starts.
  SimTime start_of(const CommStep& comm, std::size_t index) const {
    if (comm.kind != CommKind::receive) return times_.comm_done[index];
    const MessageTimes& message = timeline_.messages[comm.message.index()];
    const std::int32_t ahead = num_computes_ - program_.post_ahead;
    const auto clamped = static_cast<std::size_t>(std::max(ahead, 0));
    const SimTime earliest = ahead < 0                                ? SimTime(0)
                             : clamped < rank_program_.compute.size() ? times_.compute[clamped].start
                                                                      : message.start;
    return std::min(message.start, std::max(message.posted, earliest));
  }

  void occupy_segments(const CommStep& comm, SimTime start) {
    const bool is_receive = comm.kind == CommKind::receive;
    bool is_partial = is_receive && program_.transfer_of(comm.message).partial;  // it is the first segment
    for (const Slot& slot : rank_program_.segments_of(comm.segments)) {
      if (slot.slot_class == SlotClass::value) {
        occupy(slot, start, is_partial ? &Resident::partial_units : &Resident::block_units);
      } else {
        occupy(slot, start, is_receive ? &Resident::passing_gradient_units : &Resident::gradient_units);
      }
      is_partial = false;
    }
  }

  Occupant& occupant(const Slot& slot) {
    return occupants_[static_cast<std::size_t>(slot.slot_class)][static_cast<std::size_t>(slot.index)];
  }

  void occupy(const Slot& slot, SimTime at, Count count) {
    Occupant& here = occupant(slot);
    if (here.count == nullptr) here = {at, count};
  }

  void release(Range releases, SimTime done) {
    for (const Release& release : rank_program_.releases_of(releases)) {
      SimTime end = done;
      for (const Wait& user : rank_program_.waits_of(release.waits)) {
        end = std::max(end, timeline_.finished(rank_, user));
      }
      Occupant& gone = occupant(release.slot);
      require(gone.count != nullptr && gone.since <= end, [&] {
        return fmt::format("rank {}: slot {} is released at {} ps, occupied since {} ps", rank_.value,
                           release.slot.index, end.count(), gone.since.count());
      });
      changes_.push_back({gone.since, gone.count, 1});
      changes_.push_back({end, gone.count, -1});
      gone.count = nullptr;
    }
  }

  void count_activation(const Compute& compute, const ComputeTimes& times) {
    const bool forward = compute.op == Op::forward;
    if (forward) changes_.push_back({times.start, &Resident::activation_chunks, 1});
    if (forward ? program_.forward_only : compute.op != Op::backward_input) {
      changes_.push_back({times.end, &Resident::activation_chunks, -1});
    }
  }

  const Program& program_;
  const RankProgram& rank_program_;
  const Timeline& timeline_;
  const RankTimeline& times_;
  RankId rank_;
  std::array<std::vector<Occupant>, 2> occupants_;  // [class][slot]
  std::int32_t num_computes_ = 0;                   // walked so far
  std::vector<Change> changes_;
};

}  // namespace

std::vector<MemoryPoint> memory_curve(const Program& program, const Timeline& timeline, RankId rank) {
  std::vector<Change> changes = Lifetimes(program, timeline, rank).changes();
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.at < b.at; });
  std::vector<MemoryPoint> curve(1);
  Resident now;
  for (std::size_t i = 0; i < changes.size();) {
    const SimTime at = changes[i].at;
    for (; i < changes.size() && changes[i].at == at; ++i) {
      now.*changes[i].count += changes[i].by;
    }
    if (now == curve.back().resident) continue;
    if (curve.back().at == at) {
      curve.back().resident = now;
    } else {
      curve.push_back({at, now});
    }
  }
  return curve;
}

MemoryPeak memory_peak(const std::vector<MemoryPoint>& curve, const UnitBytes& bytes) {
  MemoryPeak peak;
  for (const MemoryPoint& point : curve) {
    for (const Count count : resident_counts) {
      peak.each.*count = std::max(peak.each.*count, point.resident.*count);
    }
    peak.value_slots = std::max(peak.value_slots, point.resident.value_slots());
    peak.gradient_slots = std::max(peak.gradient_slots, point.resident.gradient_slots());
    const std::int64_t live =
        point.resident.value_slots() * bytes.value + point.resident.gradient_slots() * bytes.gradient_slot;
    if (live > peak.bytes) {
      peak.bytes = live;
      peak.at = point.at;
      peak.live = point.resident;
    }
  }
  return peak;
}

}  // namespace plumb
