// SPDX-License-Identifier: Apache-2.0
//
// step_graph.hpp: a program's steps numbered through, and who waits for whom, in flat arrays.
//
// A program says for each step what it waits for; an event loop needs the opposite. Built in two linear passes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumb/cache/program.hpp"

namespace plumb {

using StepId = Id<struct StepTag>;  // all steps of all ranks: rank by rank, computes before comms

// The two ends of a message.
struct MessageEnds {
  StepId send{-1};
  StepId receive{-1};
  std::uint32_t num_segments = 0;
};

class StepGraph {
 public:
  // Throws InputError when a message's send or receive is missing or doubled, sits on the wrong rank, or has other
  // segments than its other end.
  explicit StepGraph(const Program& program);

  std::size_t num_steps() const { return first_dependent_.size() - 1; }
  StepId compute(RankId rank, std::int32_t index) const { return StepId(first_compute_[rank.index()] + index); }
  StepId comm(RankId rank, std::int32_t index) const { return StepId(first_comm_[rank.index()] + index); }
  // What a step of this rank is in the rank's own numbering.
  Wait local(RankId rank, StepId step) const {
    const std::int32_t first_comm = first_comm_[rank.index()];
    if (step.value < first_comm) return {Wait::On::compute, step.value - first_compute_[rank.index()]};
    return {Wait::On::comm, step.value - first_comm};
  }

  // The steps of the same rank that wait for this one; a computation's successor on its rank is among them.
  std::span<const StepId> dependents(StepId step) const {
    return {dependents_.data() + first_dependent_[step.index()],
            dependents_.data() + first_dependent_[step.index() + 1]};
  }
  const MessageEnds& ends(MessageId message) const { return ends_[message.index()]; }

 private:
  template <class Visit>
  void for_each_wait(const RankProgram& program, RankId rank, Visit&& visit) const;
  void find_dependents(const RankProgram& program, RankId rank);
  void find_ends(const Program& program, RankId rank);
  void require_both_ends(const Program& program) const;

  std::vector<std::int32_t> first_compute_;  // [rank]
  std::vector<std::int32_t> first_comm_;
  std::vector<std::uint32_t> first_dependent_;
  std::vector<StepId> dependents_;
  std::vector<MessageEnds> ends_;
};

}  // namespace plumb
