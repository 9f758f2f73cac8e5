// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "plumb/schedule/error.hpp"
#include "plumb/simulator/against.hpp"
#include "step_graph.hpp"

namespace plumb {
namespace {

template <class Took>
SimTime least_over(std::span<const Timeline> steps, const Took& took) {
  SimTime least = SimTime::max();
  for (const Timeline& step : steps)
    least = std::min(least, took(step));
  return std::max(least, SimTime(0));
}

// Goes through the program's steps in any order in which each comes after what it waits for: no two share anything
// here, so an end needs nothing but the ends before it.
class Undisturbed {
 public:
  Undisturbed(const Program& program, std::span<const Timeline> steps)
      : program_(program),
        steps_(steps),
        graph_(program),
        pending_(graph_.num_steps()),
        ready_(graph_.num_steps()),
        ends_ready_(program.messages.size()),
        timeline_(steps.front()) {
    timeline_.step = SimTime(0);
  }

  Timeline run() {
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      const RankProgram& rank = program_.ranks[r];
      for (std::size_t i = 0; i < rank.compute.size(); ++i)
        expect(RankId(r), graph_.compute(RankId(r), index(i)), rank.compute[i].waits.size() + (i > 0 ? 1 : 0));
      for (std::size_t i = 0; i < rank.comm.size(); ++i)
        expect(RankId(r), graph_.comm(RankId(r), index(i)), rank.comm[i].waits.size());
    }
    while (!free_.empty()) {
      const auto [rank, step] = free_.back();
      free_.pop_back();
      do_step(rank, step);
    }
    return std::move(timeline_);
  }

 private:
  struct Free {
    RankId rank;
    StepId step;
  };
  static std::int32_t index(std::size_t i) { return static_cast<std::int32_t>(i); }

  void expect(RankId rank, StepId step, std::size_t num_inputs) {
    pending_[step.index()] = index(num_inputs);
    if (num_inputs == 0) free_.push_back({rank, step});
  }

  void do_step(RankId rank, StepId step) {
    const Wait local = graph_.local(rank, step);
    const auto place = static_cast<std::size_t>(local.step);
    const SimTime ready = ready_[step.index()];
    if (local.on == Wait::On::compute) {
      ComputeTimes& times = timeline_.ranks[rank.index()].compute[place];
      const SimTime took = least_over(steps_, [&](const Timeline& measured) {
        const ComputeTimes& was = measured.ranks[rank.index()].compute[place];
        return was.end - was.start;
      });
      times = {ready, ready + took, SimTime(0)};
      return end(rank, step, times.end);
    }
    const CommStep& comm = program_.ranks[rank.index()].comm[place];
    if (comm.kind != CommKind::send && comm.kind != CommKind::receive) return end(rank, step, ready);
    MessageTimes& times = timeline_.messages[comm.message.index()];
    (comm.kind == CommKind::send ? times.send_ready : times.posted) = ready;
    if (++ends_ready_[comm.message.index()] == 2) move(comm.message);
  }

  void move(MessageId message) {
    const auto both_ready = [&](const Timeline& timeline) {
      const MessageTimes& times = timeline.messages[message.index()];
      return std::max(times.send_ready, times.posted);
    };
    MessageTimes& times = timeline_.messages[message.index()];
    times.start = both_ready(timeline_);
    times.sent = times.start + least_over(steps_, [&](const Timeline& measured) {
                   return measured.messages[message.index()].sent - both_ready(measured);
                 });
    times.arrived = times.start + least_over(steps_, [&](const Timeline& measured) {
                      return measured.messages[message.index()].arrived - both_ready(measured);
                    });
    end(program_.sender(message), graph_.ends(message).send, times.sent);
    end(program_.receiver(message), graph_.ends(message).receive, times.arrived);
  }

  void end(RankId rank, StepId step, SimTime at) {
    const Wait local = graph_.local(rank, step);
    if (local.on == Wait::On::comm) timeline_.ranks[rank.index()].comm_done[static_cast<std::size_t>(local.step)] = at;
    timeline_.step = std::max(timeline_.step, at);
    for (const StepId waiter : graph_.dependents(step)) {
      ready_[waiter.index()] = std::max(ready_[waiter.index()], at);
      if (--pending_[waiter.index()] == 0) free_.push_back({rank, waiter});
    }
  }

  const Program& program_;
  std::span<const Timeline> steps_;
  const StepGraph graph_;
  std::vector<std::int32_t> pending_;     // [step]
  std::vector<SimTime> ready_;            // [step]
  std::vector<std::uint8_t> ends_ready_;  // [message]
  std::vector<Free> free_;
  Timeline timeline_;
};

}  // namespace

Timeline undisturbed(const Program& program, std::span<const Timeline> steps) {
  if (steps.empty()) throw InputError("no step was measured");
  return Undisturbed(program, steps).run();
}

}  // namespace plumb
