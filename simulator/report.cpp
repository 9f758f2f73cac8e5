// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/report.hpp"

#include <algorithm>
#include <map>

#include "plumb/cache/volume.hpp"

namespace plumb {
namespace {

// Idle time between two instants of one rank, split where a phase ends.
class IdleSplitter {
 public:
  IdleSplitter(const RankProgram& program, const RankTimeline& times, SimTime step) {
    bool has_backward = false;
    SimTime last_forward{0};
    for (std::size_t i = 0; i < program.compute.size(); ++i) {
      if (program.compute[i].compute.op == Op::forward) {
        last_forward = times.compute[i].end;
      } else if (!has_backward) {
        has_backward = true;
        steady_from_ = times.compute[i].start;
      }
    }
    if (program.compute.empty()) {
      steady_from_ = step;
    } else if (!has_backward) {
      steady_from_ = times.compute.front().start;
    }
    steady_to_ = std::max(steady_from_, last_forward);
  }

  void add(SimTime from, SimTime to, Bubble& bubble) const {
    bubble.warmup += overlap(from, to, SimTime(0), steady_from_);
    bubble.steady += overlap(from, to, steady_from_, steady_to_);
    bubble.cooldown += overlap(from, to, steady_to_, SimTime::max());
  }

 private:
  static SimTime overlap(SimTime from, SimTime to, SimTime begin, SimTime end) {
    return std::max(SimTime(0), std::min(to, end) - std::max(from, begin));
  }

  SimTime steady_from_{0};
  SimTime steady_to_{0};
};

RankReport report_rank(const Program& program, const CostModel& costs, const Timeline& timeline, RankId rank) {
  RankReport report;
  report.rank = rank;
  const RankTimeline& times = timeline.ranks[rank.index()];
  const IdleSplitter phases(program.ranks[rank.index()], times, timeline.step);
  SimTime idle_since{0};
  for (std::size_t i = 0; i < times.compute.size(); ++i) {
    const ComputeTimes& compute = times.compute[i];
    const Op op = program.ranks[rank.index()].compute[i].compute.op;
    (op == Op::forward           ? report.work.forward
     : op == Op::backward_weight ? report.work.backward_weight
                                 : report.work.backward) += compute.end - compute.start;
    report.bubble.waiting += compute.exposed;
    phases.add(idle_since, compute.start - compute.exposed, report.bubble);
    idle_since = compute.end;
  }
  report.busy = report.work.total();
  phases.add(idle_since, timeline.step, report.bubble);
  report.memory = memory_peak(memory_curve(program, timeline, rank), costs.bytes());
  return report;
}

struct UnitCount {
  std::int64_t forward = 0;
  std::int64_t backward = 0;

  std::int64_t bytes(const UnitBytes& unit) const { return forward * unit.value + backward * unit.gradient_wire; }
};

void report_traffic(const Program& program, const CostModel& costs, const Timeline& timeline, SimReport& report) {
  const double microbatches = program.layout.microbatches();
  std::map<std::pair<ChunkId, ChunkId>, std::pair<HopReport, UnitCount>> hops;
  UnitCount all;
  for (std::size_t m = 0; m < timeline.messages.size(); ++m) {
    const MessageTimes& times = timeline.messages[m];
    const Transfer& transfer = program.transfer_of(MessageId(m));
    auto& [hop, units] = hops[{transfer.from_chunk, transfer.to_chunk}];
    hop.from_rank = transfer.from;
    hop.to_rank = transfer.to;
    hop.queued += std::max(SimTime(0), times.start - std::max(times.send_ready, times.posted));
    hop.on_wire += times.arrived - times.start;
    const bool forward = program.messages[m].direction == Direction::forward;
    (forward ? units.forward : units.backward) += times.units;
    (forward ? all.forward : all.backward) += times.units;
  }
  for (auto& [chunks, counted] : hops) {
    auto& [hop, units] = counted;
    hop.from_chunk = chunks.first;
    hop.to_chunk = chunks.second;
    hop.forward_units = static_cast<double>(units.forward) / microbatches;
    hop.backward_units = static_cast<double>(units.backward) / microbatches;
    hop.bytes_per_step = units.bytes(costs.bytes());
    report.hops.push_back(hop);
  }
  report.forward_units_per_microbatch = static_cast<double>(all.forward) / microbatches;
  report.backward_units_per_microbatch = static_cast<double>(all.backward) / microbatches;
  report.bytes_per_step = all.bytes(costs.bytes());

  const std::int64_t one_way =
      expected_units(program.layout, program.depth, program.routing.policy) * program.layout.microbatches();
  const UnitCount expected{one_way, program.forward_only ? 0 : one_way};
  report.traffic_equals_formula = all.forward == expected.forward && all.backward == expected.backward &&
                                  report.bytes_per_step == expected.bytes(costs.bytes());
}

// A time of all ranks: its sum may be more than fits a SimTime.
class OverRanks {
 public:
  OverRanks(const std::vector<RankReport>& ranks, SimTime (*time_of)(const RankReport&))
      : num_ranks_(static_cast<std::int64_t>(ranks.size())) {
    for (const RankReport& rank : ranks) {
      mean_ += time_of(rank) / num_ranks_;
      rest_ += time_of(rank) % num_ranks_;
    }
  }
  SimTime mean() const { return mean_ + rest_ / num_ranks_; }
  double sum() const {
    return static_cast<double>(mean_.count()) * static_cast<double>(num_ranks_) + static_cast<double>(rest_.count());
  }

 private:
  std::int64_t num_ranks_;
  SimTime mean_{0};  // rounded down, rank by rank
  SimTime rest_{0};
};

void report_bubble(SimReport& report) {
  const OverRanks warmup(report.ranks, [](const RankReport& rank) { return rank.bubble.warmup; });
  const OverRanks steady(report.ranks, [](const RankReport& rank) { return rank.bubble.steady; });
  const OverRanks cooldown(report.ranks, [](const RankReport& rank) { return rank.bubble.cooldown; });
  const OverRanks waiting(report.ranks, [](const RankReport& rank) { return rank.bubble.waiting; });
  const OverRanks busy(report.ranks, [](const RankReport& rank) { return rank.busy; });
  report.bubble.warmup = warmup.mean();
  report.bubble.steady = steady.mean();
  report.bubble.cooldown = cooldown.mean();
  report.bubble.waiting = waiting.mean();
  const double idle = warmup.sum() + steady.sum() + cooldown.sum() + waiting.sum();
  const double all = static_cast<double>(report.step.count()) * static_cast<double>(report.ranks.size());
  report.bubble_over_step = all > 0 ? idle / all : 0;
  report.bubble_over_ideal = busy.sum() > 0 ? idle / busy.sum() : 0;
}

}  // namespace

SimReport make_report(const Program& program, const CostModel& costs, const Timeline& timeline,
                      const NetworkModel* network) {
  SimReport report;
  report.step = timeline.step;
  report.memory_within_slots = true;
  report.times_add_up = true;
  const std::vector<Exposure> exposed =
      network != nullptr ? exposure(program, timeline, costs, *network) : exposure(program, timeline);
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    report.ranks.push_back(report_rank(program, costs, timeline, RankId(r)));
    RankReport& rank = report.ranks.back();
    rank.exposed = exposed[r];
    report.times_add_up = report.times_add_up && rank.exposed.total() == rank.bubble.waiting &&
                          rank.work.total() + rank.bubble.total() == report.step;
    const MemoryPeak& peak = rank.memory;
    report.memory_within_slots = report.memory_within_slots && peak.value_slots <= program.ranks[r].num_value_slots &&
                                 peak.gradient_slots <= program.ranks[r].num_gradient_slots;
  }
  report_bubble(report);
  report_traffic(program, costs, timeline, report);
  return report;
}

MemoryPeak worst_peak(const SimReport& report) {
  MemoryPeak worst;
  for (const RankReport& rank : report.ranks) {
    const MemoryPeak& peak = rank.memory;
    if (peak.bytes > worst.bytes) {
      worst.bytes = peak.bytes;
      worst.at = peak.at;
      worst.live = peak.live;
    }
    for (const auto count : resident_counts) {
      worst.each.*count = std::max(worst.each.*count, peak.each.*count);
    }
    worst.value_slots = std::max(worst.value_slots, peak.value_slots);
    worst.gradient_slots = std::max(worst.gradient_slots, peak.gradient_slots);
  }
  return worst;
}

}  // namespace plumb
