// SPDX-License-Identifier: Apache-2.0
//
// bounds.hpp (private): lower bounds of many families of one request, tables kept between them.
//
// Time: for each rank, what lies before its first chunk, all its work, what lies behind it; or what it sends and
// receives, one after the other; and the end of the step.
// Memory: what is held throughout, and the activations of the forwards before the first backward, at their lightest.
// Network: exact but for messages between ranks of one innermost tier.
#pragma once

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "model_tables.hpp"
#include "plumb/sizing/evaluate.hpp"

namespace plumb {

class Bounds {
 public:
  // Keeps a reference.
  explicit Bounds(const SizeRequest& request);

  // In the order of the family's members. Of those that do not fit only peak_bytes is said.
  std::vector<LowerBounds> of(const CandidateFamily& family);

  // Cheap, and no more than the least peak_bytes of any member.
  double least_memory(const CandidateFamily& family);

 private:
  using Kind = std::tuple<ScheduleKind, int, int, int, int>;  // group, P, V, M
  const std::vector<std::int64_t>& activations_held(const Candidate& candidate);

  const SizeRequest& request_;
  TableCache tables_;
  std::map<Kind, std::vector<std::int64_t>> held_;
  std::map<std::pair<int, int>, HeldParameters> sums_;  // of the whole model by tp and ep
};

}  // namespace plumb
