// SPDX-License-Identifier: Apache-2.0
//
// bounds.hpp (private): lower bounds of many families of one request, tables kept between them.
//
// First look. Time: for each rank, what lies before its first chunk, all its work, what lies behind it; or what it
// sends and receives, one after the other; and the end of the step, exactly. Memory: what is held throughout, and the
// activations of the forwards before the first backward, at their lightest. Network: exact.
// Closer look. Time: all computations in their order, each after what its inputs need at the least (compute_order.hpp).
// Memory: the fullest that the same order gets with activations, blocks and their gradients.
#pragma once

#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "compute_order.hpp"
#include "model_tables.hpp"
#include "pipeline_bounds.hpp"
#include "plumb/sizing/evaluate.hpp"

namespace plumb {

class Bounds {
 public:
  struct Bounded {
    std::size_t member = 0;
    LowerBounds bounds;
  };

  // Keeps a reference.
  explicit Bounds(const SizeRequest& request);

  // In the order of the family's members. Of those that do not fit only peak_bytes is said.
  std::vector<LowerBounds> of(const CandidateFamily& family);

  // From the first look at some members that fit by it. Safe from many threads.
  void look_closer(const CandidateFamily& family, std::span<Bounded> members);

  // Cheap, and no more than the least peak_bytes of any member.
  double least_memory(const CandidateFamily& family);

 private:
  using Kind = std::tuple<ScheduleKind, int, int, int, int>;  // group, P, V, M
  const std::vector<std::int64_t>& activations_held(const Candidate& candidate);

  // Of one family; what members have in common is made once.
  class Family {
   public:
    Family(const SizeRequest& request, const ModelTables& tables) : request_(request), tables_(tables) {}
    PipelineBounds& of(const Candidate& candidate);

   private:
    const SizeRequest& request_;
    const ModelTables& tables_;
    std::map<std::tuple<CutRule, Placement, bool>, PipelineBounds> pipelines_;
  };

  const SizeRequest& request_;
  TableCache tables_;
  ComputeOrders orders_;
  std::map<Kind, std::vector<std::int64_t>> held_;
  std::map<std::pair<int, int>, HeldParameters> sums_;  // of the whole model by tp and ep
};

}  // namespace plumb
