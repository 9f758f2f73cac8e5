// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/exposure.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "alone_times.hpp"
#include "step_graph.hpp"

namespace plumb {
namespace {

constexpr SimTime not_computed{-1};

class TimelineFollower {
 public:
  TimelineFollower(const Program& program, const Timeline& timeline, AloneTimes alone)
      : program_(program),
        timeline_(timeline),
        alone_(std::move(alone)),
        graph_(program),
        computed_(graph_.num_steps(), not_computed) {}

  // When the last computation behind compute step `index` of `rank` had ended, its predecessor on the rank included.
  SimTime inputs_computed(RankId rank, std::size_t index) {
    const RankProgram& steps = program_.ranks[rank.index()];
    SimTime latest = index == 0 ? SimTime(0) : timeline_.ranks[rank.index()].compute[index - 1].end;
    for (const Wait& wait : steps.waits_of(steps.compute[index].waits))
      latest = std::max(latest, computed_behind(rank, wait));
    return latest;
  }

  Exposure split(RankId rank, std::size_t index) {
    Exposure parts;
    const ComputeTimes& times = timeline_.ranks[rank.index()].compute[index];
    if (times.exposed <= SimTime(0)) return parts;
    const SimTime from = times.start - times.exposed;
    SimTime until = times.start;
    const RankProgram& steps = program_.ranks[rank.index()];
    std::optional<Awaited> last = last_input(rank, steps.compute[index].waits);
    // Each turn goes one event back in time; a damaged log may stand still, so the walk is bounded.
    for (std::size_t turn = 0; turn < graph_.num_steps() && until > from; ++turn) {
      if (!last) break;
      take(parts.wait, last->finished, until, from);
      if (last->wait.on == Wait::On::compute) break;
      last = before(*last, until, from, parts);
    }
    if (until > from) parts.wait += until - from;
    return parts;
  }

 private:
  // A step that another waited for.
  struct Awaited {
    RankId rank;
    Wait wait;
    SimTime finished{0};
  };

  std::optional<Awaited> last_input(RankId rank, Range waits) const {
    std::optional<Awaited> last;
    for (const Wait& wait : program_.ranks[rank.index()].waits_of(waits)) {
      const SimTime finished = timeline_.finished(rank, wait);
      if (!last || finished > last->finished) last = Awaited{rank, wait, finished};
    }
    return last;
  }

  // Moves `until` back to `begin`, not beyond `from`, and books the time on `part`.
  static void take(SimTime& part, SimTime begin, SimTime& until, SimTime from) {
    const SimTime to = std::max(begin, from);
    if (to >= until) return;
    part += until - to;
    until = to;
  }

  // Books the communication step `last` and returns what it waited for.
  std::optional<Awaited> before(const Awaited& last, SimTime& until, SimTime from, Exposure& parts) const {
    const CommStep& step = comm_step(last);
    if (step.kind == CommKind::add || step.kind == CommKind::zero) return last_input(last.rank, step.waits);
    const MessageTimes& times = timeline_.messages[step.message.index()];
    const SimTime end = step.kind == CommKind::send ? times.sent : times.arrived;
    const SimTime alone = alone_.of(program_.messages[step.message.index()], end - times.start);
    const MessageEnds& ends = graph_.ends(step.message);
    if (times.posted > times.start && step.kind == CommKind::receive) {
      // It left before its receive was there.
      take(parts.queue, std::max(times.posted, times.start + alone), until, from);
      take(parts.wait, times.start + alone, until, from);
    }
    take(parts.wire, end - alone, until, from);
    take(parts.queue, times.start, until, from);
    const SimTime ready = times.posted > times.start ? times.send_ready : std::max(times.send_ready, times.posted);
    take(parts.wire, std::max(ready, times.start - alone_.launch()), until, from);
    take(parts.queue, ready, until, from);
    take(parts.wait, times.send_ready, until, from);
    const RankId rank = program_.sender(step.message);
    const Wait send = graph_.local(rank, ends.send);
    return last_input(rank, program_.ranks[rank.index()].comm[static_cast<std::size_t>(send.step)].waits);
  }

  const CommStep& comm_step(const Awaited& last) const {
    return program_.ranks[last.rank.index()].comm[static_cast<std::size_t>(last.wait.step)];
  }

  StepId id_of(RankId rank, const Wait& wait) const {
    return wait.on == Wait::On::compute ? graph_.compute(rank, wait.step) : graph_.comm(rank, wait.step);
  }

  SimTime computed_behind(RankId rank, const Wait& wait) {
    if (wait.on == Wait::On::compute) return timeline_.finished(rank, wait);
    pending_.push_back({rank, wait});
    while (!pending_.empty()) {
      const Behind top = pending_.back();
      if (computed_[id_of(top.rank, top.wait).index()] != not_computed || close(top)) pending_.pop_back();
    }
    return computed_[id_of(rank, wait).index()];
  }

  struct Behind {
    RankId rank;
    Wait wait;
  };

  // Settles a communication step if all behind it are settled; else puts those on the stack.
  bool close(const Behind& behind) {
    const CommStep& step = program_.ranks[behind.rank.index()].comm[static_cast<std::size_t>(behind.wait.step)];
    SimTime latest{0};
    bool complete = true;
    const auto look_at = [&](RankId rank, Range waits) {
      for (const Wait& wait : program_.ranks[rank.index()].waits_of(waits)) {
        if (wait.on == Wait::On::compute) {
          latest = std::max(latest, timeline_.finished(rank, wait));
          continue;
        }
        const SimTime known = computed_[graph_.comm(rank, wait.step).index()];
        if (known == not_computed) {
          complete = false;
          pending_.push_back({rank, wait});
        }
        latest = std::max(latest, known);
      }
    };
    if (step.kind == CommKind::send || step.kind == CommKind::receive) {
      const MessageEnds& ends = graph_.ends(step.message);
      for (const auto& [rank, id] : {std::pair{program_.sender(step.message), ends.send},
                                     std::pair{program_.receiver(step.message), ends.receive}}) {
        look_at(rank, program_.ranks[rank.index()].comm[static_cast<std::size_t>(graph_.local(rank, id).step)].waits);
      }
    } else {
      look_at(behind.rank, step.waits);
    }
    if (complete) computed_[graph_.comm(behind.rank, behind.wait.step).index()] = latest;
    return complete;
  }

  const Program& program_;
  const Timeline& timeline_;
  const AloneTimes alone_;
  const StepGraph graph_;
  std::vector<SimTime> computed_;  // [step], communication steps only
  std::vector<Behind> pending_;
};

// A sum's time is the latest of what it waits for; those may be sums of the same rank, earlier in its list.
void date_sums(const Program& program, Timeline& timeline) {
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const RankProgram& steps = program.ranks[r];
    for (std::size_t i = 0; i < steps.comm.size(); ++i) {
      const CommStep& step = steps.comm[i];
      SimTime& done = timeline.ranks[r].comm_done[i];
      if (step.kind == CommKind::send || step.kind == CommKind::receive) {
        timeline.messages[step.message.index()].units = static_cast<std::int32_t>(step.segments.size());
        continue;
      }
      for (const Wait& wait : steps.waits_of(step.waits))
        done = std::max(done, timeline.finished(RankId(r), wait));
    }
  }
}

std::vector<Exposure> split_all(const Program& program, const Timeline& timeline, AloneTimes alone) {
  TimelineFollower follower(program, timeline, std::move(alone));
  std::vector<Exposure> all(program.ranks.size());
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    for (std::size_t i = 0; i < program.ranks[r].compute.size(); ++i) {
      const Exposure one = follower.split(RankId(r), i);
      all[r].wait += one.wait;
      all[r].queue += one.queue;
      all[r].wire += one.wire;
    }
  }
  return all;
}

}  // namespace

std::vector<Exposure> exposure(const Program& program, const Timeline& timeline) {
  return split_all(program, timeline, AloneTimes());
}

std::vector<Exposure> exposure(const Program& program, const Timeline& timeline, const CostModel& costs,
                               const NetworkModel& network) {
  return split_all(program, timeline, AloneTimes(program, costs, network));
}

void complete_measured(const Program& program, Timeline& timeline) {
  date_sums(program, timeline);
  TimelineFollower follower(program, timeline, AloneTimes());
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    RankTimeline& rank = timeline.ranks[r];
    for (std::size_t i = 0; i < rank.compute.size(); ++i) {
      ComputeTimes& times = rank.compute[i];
      times.exposed = std::max(SimTime(0), times.start - follower.inputs_computed(RankId(r), i));
      timeline.step = std::max(timeline.step, times.end);
    }
    for (const SimTime done : rank.comm_done)
      timeline.step = std::max(timeline.step, done);
  }
}

}  // namespace plumb
