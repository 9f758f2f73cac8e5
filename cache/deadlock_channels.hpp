// SPDX-License-Identifier: Apache-2.0
//
// deadlock_channels.hpp (private): what each send and receive must wait for under a channel model, as flat arrays.
//
// All steps of all ranks share one numbering: a rank's computations, then its communication steps. Behind the steps
// come nodes for the groups of single_stream; a group is finished when all its members are.
#pragma once

#include <cstdint>
#include <vector>

#include "plumb/cache/deadlock.hpp"

namespace plumb {

class StepNumbers {
 public:
  explicit StepNumbers(const Program& program);

  std::int32_t of(RankId rank, StepRef step) const {
    return first_[rank.index()] + (step.comm ? num_computes_[rank.index()] : 0) + step.index;
  }
  RankId rank_of(std::int32_t number) const;
  StepRef step_of(std::int32_t number) const;
  std::size_t size() const { return static_cast<std::size_t>(first_.back()); }

 private:
  std::vector<std::int32_t> first_;  // [rank], and the number of all steps
  std::vector<std::int32_t> num_computes_;
};

struct ChannelPlan {
  static constexpr std::int32_t none = -1;

  std::vector<std::int32_t> partner;  // [step]: the other end of a send or receive; none if there is none
  std::vector<std::int32_t> before;   // [step]: the step or group that must have finished first, besides the waits
  // single_stream only.
  std::vector<std::int32_t> group;        // [step]: its group, or none
  std::vector<std::int32_t> group_first;  // [group]: its first step; members follow each other
  std::vector<std::int32_t> group_size;
};

// REQUIRES a sound structure (verify_structure).
ChannelPlan plan_channels(const Program& program, const StepNumbers& numbers, ChannelModel model);

}  // namespace plumb
