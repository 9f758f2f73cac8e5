// SPDX-License-Identifier: Apache-2.0
#include "step_graph.hpp"

#include <limits>

#include <fmt/format.h>

#include "names.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb {

template <class Visit>
void StepGraph::for_each_wait(const Program& program, const ProgramCut& cut, Visit&& visit) const {
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const RankId rank(r);
    const RankProgram& rank_program = program.ranks[r];
    const auto visit_waits = [&](Range waits, bool behind, StepId waiter) {
      for (const Wait& wait : rank_program.waits_of(waits)) {
        const std::int32_t step = cut.awaited(rank, behind, wait);
        if (step < 0) throw NotWhole{};
        visit(wait.on == Wait::On::compute ? compute(rank, step) : comm(rank, step), waiter);
      }
    };
    const ListCut& computes = cut.compute[r];
    for (std::int32_t i = 0; i < computes.size; ++i) {
      const StepId step = compute(rank, i);
      if (i > 0) visit(step.previous(), step);
      const auto original = static_cast<std::size_t>(computes.original(i));
      visit_waits(rank_program.compute[original].waits, i >= computes.at, step);
    }
    const ListCut& comms = cut.comm[r];
    for (std::int32_t i = 0; i < comms.size; ++i) {
      const auto original = static_cast<std::size_t>(comms.original(i));
      visit_waits(rank_program.comm[original].waits, i >= comms.at, comm(rank, i));
    }
  }
}

StepGraph::StepGraph(const Program& program, const ProgramCut& cut) {
  std::size_t next = 0;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const auto num_computes = static_cast<std::size_t>(cut.compute[r].size);
    first_compute_.push_back(static_cast<std::int32_t>(next));
    first_comm_.push_back(static_cast<std::int32_t>(next + num_computes));
    next += num_computes + static_cast<std::size_t>(cut.comm[r].size);
    if (next > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
      throw InputError("the program has more than 2^31 steps: simulate fewer microbatches");
    }
  }

  first_dependent_.assign(next + 1, 0);
  for_each_wait(program, cut, [&](StepId awaited, StepId) { ++first_dependent_[awaited.index()]; });
  // Each becomes the end of its list, and its begin while the list is filled from behind.
  for (std::size_t i = 1; i <= next; ++i) {
    first_dependent_[i] += first_dependent_[i - 1];
  }
  dependents_.resize(first_dependent_.back());
  for_each_wait(program, cut,
                [&](StepId awaited, StepId waiter) { dependents_[--first_dependent_[awaited.index()]] = waiter; });

  find_ends(program, cut);
}

void StepGraph::find_ends(const Program& program, const ProgramCut& cut) {
  ends_.assign(static_cast<std::size_t>(cut.messages.size), {});
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const RankId rank(r);
    const std::vector<CommStep>& steps = program.ranks[r].comm;
    const ListCut& comms = cut.comm[r];
    for (std::int32_t i = 0; i < comms.size; ++i) {
      // The messages of a rank are far apart: each would be a cache miss.
      constexpr std::int32_t ahead = 12;
      if (i + ahead < comms.size) {
        const MessageId later = steps[static_cast<std::size_t>(comms.original(i + ahead))].message;
        __builtin_prefetch(program.messages.data() + later.index());
        __builtin_prefetch(ends_.data() + cut.message(later, i + ahead >= comms.at).index());
      }
      const CommStep& step = steps[static_cast<std::size_t>(comms.original(i))];
      const bool sending = step.kind == CommKind::send;
      if (!sending && step.kind != CommKind::receive) continue;
      const RankId here = sending ? program.sender(step.message) : program.receiver(step.message);
      const MessageId message = cut.message(step.message, i >= comms.at);
      if (message.value < 0 || message.value >= cut.messages.size) throw NotWhole{};
      MessageEnds& ends = ends_[message.index()];
      StepId& mine = sending ? ends.send : ends.receive;
      const StepId other = sending ? ends.receive : ends.send;
      if (here != rank || mine.value >= 0) {
        throw InputError(fmt::format("rank {}: {} does not belong here or is there twice", rank.value,
                                     message_name(program, step.message, sending)));
      }
      mine = comm(rank, i);
      if (other.value >= 0 && ends.num_segments != step.segments.size()) {
        throw InputError(fmt::format("rank {}: {} has {} segments, its other end {}", rank.value,
                                     message_name(program, step.message, sending), step.segments.size(),
                                     ends.num_segments));
      }
      ends.num_segments = step.segments.size();
    }
  }
  for (std::size_t m = 0; m < ends_.size(); ++m) {
    if (ends_[m].send.value < 0 || ends_[m].receive.value < 0) {
      const bool sending = ends_[m].send.value < 0;
      throw InputError(fmt::format("message {}: {} is missing", m, message_name(program, MessageId(m), sending)));
    }
  }
}

}  // namespace plumb
