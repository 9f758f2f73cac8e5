// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/memory.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "plumb/schedule/invariant.hpp"

namespace plumb {
namespace {

enum class Kind : std::uint8_t { value, gradient, activation };

struct Change {
  SimTime at;
  Kind kind;
  std::int32_t by;
};

constexpr SimTime is_free{-1};

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
    born_[0].assign(static_cast<std::size_t>(rank_program_.num_value_slots), is_free);
    born_[1].assign(static_cast<std::size_t>(rank_program_.num_gradient_slots), is_free);
  }

  std::vector<Change> changes() {
    for (const StepRef step : rank_program_.order) {
      const auto index = static_cast<std::size_t>(step.index);
      if (step.comm) {
        const CommStep& comm = rank_program_.comm[index];
        for (const Slot& slot : rank_program_.segments_of(comm.segments))
          occupy(slot, start_of(comm, index));
        release(comm.releases, times_.comm_done[index]);
      } else {
        const ComputeStep& compute = rank_program_.compute[index];
        for (const Operand& operand : rank_program_.operands_of(compute.operands)) {
          occupy({slot_class(operand.role), operand.slot}, times_.compute[index].start);
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

  SimTime& born(const Slot& slot) {
    return born_[static_cast<std::size_t>(slot.slot_class)][static_cast<std::size_t>(slot.index)];
  }

  void occupy(const Slot& slot, SimTime at) {
    SimTime& since = born(slot);
    if (since == is_free) since = at;
  }

  void release(Range releases, SimTime done) {
    for (const Release& release : rank_program_.releases_of(releases)) {
      SimTime end = done;
      for (const Wait& user : rank_program_.waits_of(release.waits))
        end = std::max(end, timeline_.finished(rank_, user));
      SimTime& since = born(release.slot);
      require(since != is_free && since <= end, [&] {
        return fmt::format("rank {}: slot {} is released at {} ps, occupied since {} ps", rank_.value,
                           release.slot.index, end.count(), since.count());
      });
      const Kind kind = release.slot.slot_class == SlotClass::value ? Kind::value : Kind::gradient;
      changes_.push_back({since, kind, 1});
      changes_.push_back({end, kind, -1});
      since = is_free;
    }
  }

  void count_activation(const Compute& compute, const ComputeTimes& times) {
    const bool forward = compute.op == Op::forward;
    if (forward) changes_.push_back({times.start, Kind::activation, 1});
    if (forward ? program_.forward_only : compute.op != Op::backward_input) {
      changes_.push_back({times.end, Kind::activation, -1});
    }
  }

  const Program& program_;
  const RankProgram& rank_program_;
  const Timeline& timeline_;
  const RankTimeline& times_;
  RankId rank_;
  std::array<std::vector<SimTime>, 2> born_;  // [class][slot]
  std::int32_t num_computes_ = 0;             // walked so far
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
      std::int32_t& count = changes[i].kind == Kind::value      ? now.value_units
                            : changes[i].kind == Kind::gradient ? now.gradient_units
                                                                : now.activation_chunks;
      count += changes[i].by;
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
    peak.value_units = std::max(peak.value_units, point.resident.value_units);
    peak.gradient_units = std::max(peak.gradient_units, point.resident.gradient_units);
    peak.activation_chunks = std::max(peak.activation_chunks, point.resident.activation_chunks);
    const std::int64_t live =
        point.resident.value_units * bytes.value + point.resident.gradient_units * bytes.gradient_slot;
    if (live > peak.bytes) {
      peak.bytes = live;
      peak.at = point.at;
      peak.live = point.resident;
    }
  }
  return peak;
}

}  // namespace plumb
