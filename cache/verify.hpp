// SPDX-License-Identifier: Apache-2.0
//
// verify.hpp (private): the parts of verify_program. They trust nothing in the program and share no code with lowering:
// what a step must touch is derived again from the depth map and the routing's trees.
#pragma once

#include <string>
#include <vector>

#include "plumb/cache/deadlock.hpp"

namespace plumb {

// Collects faults up to a limit; parts stop early once it is full.
class FaultList {
 public:
  explicit FaultList(std::size_t limit) : limit_(limit) {}

  void add(RankId rank, std::int32_t position, std::string token, std::string why) {
    if (!full()) faults_.push_back({rank, position, std::move(token), std::move(why)});
  }
  bool full() const { return faults_.size() >= limit_; }
  bool empty() const { return faults_.empty(); }
  FaultList as_empty() const { return FaultList(limit_); }  // with the same limit
  void join(FaultList later) {
    for (ProgramFault& fault : later.faults_) {
      if (!full()) faults_.push_back(std::move(fault));
    }
  }
  std::vector<ProgramFault> take() { return std::move(faults_); }
  const ProgramFault& front() const { return faults_.front(); }

 private:
  std::size_t limit_;
  std::vector<ProgramFault> faults_;
};

// What a chunk reads and closes, found in the holdings' reader lists.
struct ChunkSources {
  std::vector<HoldingId> holdings;  // [chunk] ranges, ascending by block within a chunk
  std::vector<std::size_t> begin;   // [chunk], and one past the last

  std::span<const HoldingId> of(ChunkId chunk) const {
    return std::span<const HoldingId>(holdings).subspan(begin[chunk.index()],
                                                        begin[chunk.index() + 1] - begin[chunk.index()]);
  }
};
ChunkSources chunk_sources(const Program& program);  // REQUIRES indices in range

// Every index, range and slot is within its list. All other parts, and check_deadlock, REQUIRE that this found nothing.
void verify_structure(const Program& program, FaultList& faults);

// The trees are trees, reach every reader, and the transfers fill each holding once and carry each open partial once.
void verify_routing(const Program& program, const ChunkSources& sources, FaultList& faults);

// One forward (and one backward) message per transfer and microbatch, both ends of each present once and alike, in the
// same order on both sides of a channel.
void verify_messages(const Program& program, FaultList& faults);

// Each chunk runs forward and backward (or I and W) once per microbatch, on its rank, in that order.
void verify_computes(const Program& program, FaultList& faults);

// Replays one rank in the common order with what each slot holds: every read finds what it means, written by a step
// that is certain to have finished; nothing is overwritten before all its users are certain to have finished; every
// gradient sum has all its contributions.
void verify_slots(const Program& program, const ChunkSources& sources, RankId rank, FaultList& faults);

}  // namespace plumb
