// SPDX-License-Identifier: Apache-2.0
//
// contributions.hpp (private): counts, per holding and microbatch, the gradient contributions that reached its
// accumulator.
//
// Both workers count; the waits of a right program order them, and of a wrong one the counts must still be readable,
// hence the atomics.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "rank_plan.hpp"

namespace plumb {

class ContributionCounts {
 public:
  explicit ContributionCounts(std::size_t size) : counts_(new std::atomic<std::int32_t>[size]), size_(size) { reset(); }

  void reset() {
    for (std::size_t i = 0; i < size_; ++i)
      counts_[i].store(0, std::memory_order_relaxed);
  }
  void add(std::int32_t counter) { counts_[static_cast<std::size_t>(counter)].fetch_add(1, std::memory_order_relaxed); }
  std::int32_t get(std::int32_t counter) const {
    return counts_[static_cast<std::size_t>(counter)].load(std::memory_order_relaxed);
  }
  std::int64_t total() const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < size_; ++i)
      sum += counts_[i].load(std::memory_order_relaxed);
    return sum;
  }

 private:
  std::unique_ptr<std::atomic<std::int32_t>[]> counts_;
  std::size_t size_;
};

}  // namespace plumb
