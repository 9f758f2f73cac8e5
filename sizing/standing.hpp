// SPDX-License-Identifier: Apache-2.0
//
// standing.hpp (private): what is best so far, and whether something with such bounds could change that.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plumb/sizing/search.hpp"

namespace plumb {

class Standing {
 public:
  explicit Standing(std::size_t num_best) : num_best_(num_best) {}

  void add(const Evaluated& one);
  bool could_matter(const Candidate& candidate, const LowerBounds& bounds, std::size_t order) const;
  double best_step_us() const { return best_.empty() ? 0 : best_.front().outcome.step_us(); }
  void write(SearchResult& result) const;

 private:
  std::size_t num_best_;
  std::vector<Evaluated> best_;  // one per layout, ascending; at most num_best_
  std::vector<Evaluated> front_;
  std::map<ScheduleKind, Evaluated> by_schedule_;
  std::map<Policy, Evaluated> by_policy_;
};

}  // namespace plumb
