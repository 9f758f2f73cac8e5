// SPDX-License-Identifier: Apache-2.0
#include "step_graph.hpp"

#include <limits>

#include <fmt/format.h>

#include "names.hpp"
#include "plumb/schedule/error.hpp"

namespace plumb {

template <class Visit>
void StepGraph::for_each_wait(const RankProgram& program, RankId rank, Visit&& visit) const {
  const auto visit_waits = [&](Range waits, StepId waiter) {
    for (const Wait& wait : program.waits_of(waits)) {
      visit(wait.on == Wait::On::compute ? compute(rank, wait.step) : comm(rank, wait.step), waiter);
    }
  };
  StepId step = compute(rank, 0);
  for (std::size_t i = 0; i < program.compute.size(); ++i, step = step.next()) {
    if (i > 0) visit(step.previous(), step);
    visit_waits(program.compute[i].waits, step);
  }
  for (const CommStep& comm : program.comm) {
    visit_waits(comm.waits, step);
    step = step.next();
  }
}

StepGraph::StepGraph(const Program& program) {
  std::size_t num_steps = 0;
  std::size_t most_waits = 0;
  for (const RankProgram& rank : program.ranks) {
    first_compute_.push_back(static_cast<std::int32_t>(num_steps));
    first_comm_.push_back(static_cast<std::int32_t>(num_steps + rank.compute.size()));
    num_steps += rank.compute.size() + rank.comm.size();
    most_waits += rank.compute.size() + rank.waits.size();  // of which some belong to releases
    if (num_steps > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
      throw InputError("the program has more than 2^31 steps: simulate fewer microbatches");
    }
  }
  first_dependent_.assign(num_steps + 1, 0);
  dependents_.reserve(most_waits);
  ends_.assign(program.messages.size(), {});
  // All of a rank while its lists are at hand.
  for (RankId rank; rank.index() < program.ranks.size(); rank = rank.next()) {
    find_dependents(program.ranks[rank.index()], rank);
    find_ends(program, rank);
  }
  first_dependent_.back() = static_cast<std::uint32_t>(dependents_.size());
  require_both_ends(program);
}

void StepGraph::find_dependents(const RankProgram& program, RankId rank) {
  for_each_wait(program, rank, [&](StepId awaited, StepId) { ++first_dependent_[awaited.index()]; });
  // Each becomes the end of its list, and its begin while the list is filled from behind.
  auto end = static_cast<std::uint32_t>(dependents_.size());
  const std::size_t first = compute(rank, 0).index();
  for (std::size_t i = first; i < first + program.compute.size() + program.comm.size(); ++i) {
    end += first_dependent_[i];
    first_dependent_[i] = end;
  }
  dependents_.resize(end);
  for_each_wait(program, rank,
                [&](StepId awaited, StepId waiter) { dependents_[--first_dependent_[awaited.index()]] = waiter; });
}

void StepGraph::find_ends(const Program& program, RankId rank) {
  const std::vector<CommStep>& steps = program.ranks[rank.index()].comm;
  StepId id = comm(rank, 0);
  for (std::size_t i = 0; i < steps.size(); ++i, id = id.next()) {
    // The messages of a rank are far apart: each would be a cache miss.
    constexpr std::size_t ahead = 12;
    if (i + ahead < steps.size()) {
      const MessageId later = steps[i + ahead].message;
      __builtin_prefetch(program.messages.data() + later.index());
      __builtin_prefetch(ends_.data() + later.index());
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
    mine = id;
    if (other.value >= 0 && ends.num_segments != step.segments.size()) {
      throw InputError(fmt::format("rank {}: {} has {} segments, its other end {}", rank.value,
                                   message_name(program, step.message, sending), step.segments.size(),
                                   ends.num_segments));
    }
    ends.num_segments = step.segments.size();
  }
}

void StepGraph::require_both_ends(const Program& program) const {
  for (std::size_t m = 0; m < ends_.size(); ++m) {
    if (ends_[m].send.value < 0 || ends_[m].receive.value < 0) {
      const bool sending = ends_[m].send.value < 0;
      throw InputError(fmt::format("message {}: {} is missing", m, message_name(program, MessageId(m), sending)));
    }
  }
}

}  // namespace plumb
