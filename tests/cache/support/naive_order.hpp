// SPDX-License-Identifier: Apache-2.0
//
// naive_order.hpp (tests): what certainly happens before what on one rank, and which uses of a slot are not so ordered.
// By plain search over begin and end events; for small programs.
#pragma once

#include <string>
#include <vector>

#include "plumb/cache/program.hpp"

namespace plumb::test {

class NaiveOrder {
 public:
  explicit NaiveOrder(const RankProgram& rank);

  // The step at position `first` has ended before the one at `second` begins.
  bool ended_before(std::size_t first, std::size_t second) const { return reach_[first][second]; }

 private:
  std::vector<std::vector<bool>> reach_;  // [position][position]
};

// True if some slot has two uses, at least one of them writing, that may overlap.
bool has_race(const RankProgram& rank);

}  // namespace plumb::test
