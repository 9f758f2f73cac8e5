// SPDX-License-Identifier: Apache-2.0
#include "stuck.hpp"

#include <fmt/format.h>

#include "names.hpp"
#include "plumb/simulator/simulate.hpp"

namespace plumb {
namespace {

constexpr std::size_t max_listed = 32;
constexpr std::size_t max_in_text = 4;

std::string describe(std::size_t num_waiting, const std::vector<SimulationStuck::Step>& waiting) {
  std::string text = fmt::format("the program cannot go on, {} steps wait for each other: ", num_waiting);
  for (std::size_t i = 0; i < waiting.size() && i < max_in_text; ++i) {
    text += fmt::format("{}rank {} {} waits for {}", i == 0 ? "" : "; ", waiting[i].rank.value, waiting[i].what,
                        waiting[i].waiting_for);
  }
  return text;
}

class Explainer {
 public:
  Explainer(const Program& program, const StepGraph& graph, const std::vector<std::int32_t>& pending,
            const std::vector<std::uint8_t>& gates, const ChannelOrders& channels)
      : program_(program), graph_(graph), pending_(pending), gates_(gates), behind_(program.messages.size(), -1) {
    for (std::size_t m = 0; m < gates.size(); ++m) {
      if (gates[m] == 0) continue;
      for (const MessageId next : channels.after(MessageId(m))) {
        behind_[next.index()] = static_cast<std::int32_t>(m);
      }
    }
  }

  // A step waits if it lacks an event, or if it is the end of a message that has not started.
  bool waits(StepId step, const CommStep* comm) const {
    if (pending_[step.index()] > 0) return true;
    return comm != nullptr && is_end(*comm) && gates_[comm->message.index()] > 0;
  }

  std::string reason(RankId rank, StepId step, Range waits_range, const CommStep* comm) const {
    const RankProgram& rank_program = program_.ranks[rank.index()];
    for (const Wait& wait : rank_program.waits_of(waits_range)) {
      const bool computes = wait.on == Wait::On::compute;
      const StepId awaited = computes ? graph_.compute(rank, wait.step) : graph_.comm(rank, wait.step);
      if (waits(awaited, computes ? nullptr : &rank_program.comm[static_cast<std::size_t>(wait.step)])) {
        return step_name(program_, rank, wait);
      }
    }
    if (comm == nullptr) return step_name(program_, rank, {Wait::On::compute, graph_.local(rank, step).step - 1});
    const std::int32_t ahead = behind_[comm->message.index()];
    if (ahead >= 0)
      return fmt::format("{}, which is ahead in the queue", message_name(program_, MessageId(ahead), true));
    const bool sending = comm->kind == CommKind::send;
    return fmt::format("{} of rank {}", message_name(program_, comm->message, !sending), comm->peer.value);
  }

 private:
  static bool is_end(const CommStep& comm) { return comm.kind == CommKind::send || comm.kind == CommKind::receive; }

  const Program& program_;
  const StepGraph& graph_;
  const std::vector<std::int32_t>& pending_;
  const std::vector<std::uint8_t>& gates_;
  std::vector<std::int32_t> behind_;  // [message] one that has not started and is ahead of it
};

}  // namespace

SimulationStuck::SimulationStuck(std::vector<Step> waiting, std::size_t num_waiting)
    : std::runtime_error(describe(num_waiting, waiting)), waiting_(std::move(waiting)) {}

void throw_stuck(const Program& program, const StepGraph& graph, const std::vector<std::int32_t>& pending,
                 const std::vector<std::uint8_t>& gates, const ChannelOrders& channels) {
  const Explainer explainer(program, graph, pending, gates, channels);
  std::vector<SimulationStuck::Step> waiting;
  std::size_t num_waiting = 0;
  const auto visit = [&](RankId rank, StepId step, Range waits, const CommStep* comm, bool listed) {
    if (!explainer.waits(step, comm)) return false;
    ++num_waiting;
    if (listed && waiting.size() < max_listed) {
      waiting.push_back(
          {rank, step_name(program, rank, graph.local(rank, step)), explainer.reason(rank, step, waits, comm)});
    }
    return true;
  };
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const RankId rank(r);
    const RankProgram& rank_program = program.ranks[r];
    bool listed = true;  // the first waiting computation and the first waiting communication of each rank say it all
    for (std::size_t i = 0; i < rank_program.compute.size(); ++i) {
      const StepId step = graph.compute(rank, static_cast<std::int32_t>(i));
      if (visit(rank, step, rank_program.compute[i].waits, nullptr, listed)) listed = false;
    }
    listed = true;
    for (std::size_t i = 0; i < rank_program.comm.size(); ++i) {
      const StepId step = graph.comm(rank, static_cast<std::int32_t>(i));
      if (visit(rank, step, rank_program.comm[i].waits, &rank_program.comm[i], listed)) listed = false;
    }
  }
  throw SimulationStuck(std::move(waiting), num_waiting);
}

}  // namespace plumb
