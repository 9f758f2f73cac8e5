// SPDX-License-Identifier: Apache-2.0
//
// verify_order.hpp (private): which steps of one rank have certainly finished before another begins.
//
// Two workers run a rank: computations follow each other in list order, communication steps begin when their own waits
// are over, in list order only within their channel (peer, lane, direction of travel). A send or receive that began
// after another of its channel knows what that one waited for, not that it finished. Nothing is concluded from other
// ranks. Building it and each question about a computation cost O(1) per wait; a question between two communication
// steps walks back the waits that stand between them, which in a sane program are one or two.
#pragma once

#include <cstdint>
#include <vector>

#include "plumb/cache/program.hpp"

namespace plumb {

class RankOrder {
 public:
  // REQUIRES: the structure is sound and every wait names an earlier position of the order.
  explicit RankOrder(const RankProgram& rank);

  // True if `first` has finished before `second` begins, in every execution.
  bool finished_before(StepRef first, StepRef second);

 private:
  bool reaches(std::int32_t finished, std::int32_t begun);
  void mark_finished_before(std::int32_t comm, std::int32_t compute);

  const RankProgram& rank_;
  std::vector<std::int32_t> position_;        // [comm]: place in the order
  std::vector<std::int32_t> fifo_before_;     // [comm]: the step posted before it in its channel, or -1
  std::vector<std::int32_t> num_computes_;    // [comm]: so many computations have finished before it begins
  std::vector<std::int32_t> before_compute_;  // [comm]: the first computation that it has finished before
  std::vector<std::uint32_t> visited_;        // [comm]: last question that came past
  std::vector<std::int32_t> stack_;
  std::uint32_t question_ = 0;
};

}  // namespace plumb
