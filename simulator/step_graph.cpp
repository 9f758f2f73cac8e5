// SPDX-License-Identifier: Apache-2.0
#include "step_graph.hpp"

#include <limits>

#include <fmt/format.h>

#include "names.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb {

template <class Visit>
void StepGraph::for_each_wait(const Program& program, Visit&& visit) const {
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const RankId rank(r);
    const RankProgram& rank_program = program.ranks[r];
    const auto visit_waits = [&](Range waits, StepId waiter) {
      for (const Wait& wait : rank_program.waits_of(waits)) {
        visit(wait.on == Wait::On::compute ? compute(rank, wait.step) : comm(rank, wait.step), waiter);
      }
    };
    for (std::size_t i = 0; i < rank_program.compute.size(); ++i) {
      const StepId step = compute(rank, static_cast<std::int32_t>(i));
      if (i > 0) visit(step.previous(), step);
      visit_waits(rank_program.compute[i].waits, step);
    }
    for (std::size_t i = 0; i < rank_program.comm.size(); ++i) {
      visit_waits(rank_program.comm[i].waits, comm(rank, static_cast<std::int32_t>(i)));
    }
  }
}

StepGraph::StepGraph(const Program& program) {
  std::size_t next = 0;
  for (const RankProgram& rank : program.ranks) {
    first_compute_.push_back(static_cast<std::int32_t>(next));
    first_comm_.push_back(static_cast<std::int32_t>(next + rank.compute.size()));
    next += rank.compute.size() + rank.comm.size();
    if (next > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
      throw InputError("the program has more than 2^31 steps: simulate fewer microbatches");
    }
  }

  first_dependent_.assign(next + 1, 0);
  for_each_wait(program, [&](StepId awaited, StepId) { ++first_dependent_[awaited.index()]; });
  // Each becomes the end of its list, and its begin while the list is filled from behind.
  for (std::size_t i = 1; i <= next; ++i) {
    first_dependent_[i] += first_dependent_[i - 1];
  }
  dependents_.resize(first_dependent_.back());
  for_each_wait(program,
                [&](StepId awaited, StepId waiter) { dependents_[--first_dependent_[awaited.index()]] = waiter; });

  find_ends(program);
}

void StepGraph::find_ends(const Program& program) {
  ends_.assign(program.messages.size(), {});
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const RankId rank(r);
    const std::vector<CommStep>& steps = program.ranks[r].comm;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      // The messages of a rank are far apart: each would be a cache miss.
      constexpr std::size_t ahead = 12;
      if (i + ahead < steps.size()) {
        const std::size_t later = steps[i + ahead].message.index();
        __builtin_prefetch(program.messages.data() + later);
        __builtin_prefetch(ends_.data() + later);
      }
      const CommStep& step = steps[i];
      const bool sending = step.kind == CommKind::send;
      if (!sending && step.kind != CommKind::receive) continue;
      const RankId here = sending ? program.sender(step.message) : program.receiver(step.message);
      MessageEnds& ends = ends_[step.message.index()];
      StepId& mine = sending ? ends.send : ends.receive;
      const StepId other = sending ? ends.receive : ends.send;
      if (here != rank || mine.value >= 0) {
        throw InputError(fmt::format("rank {}: {} does not belong here or is there twice", rank.value,
                                     message_name(program, step.message, sending)));
      }
      mine = comm(rank, static_cast<std::int32_t>(i));
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
