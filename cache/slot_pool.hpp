// SPDX-License-Identifier: Apache-2.0
//
// slot_pool.hpp (private): the slots of one class while a program is being lowered.
//
// A slot is taken again only if its former users have finished by then according to the plan, so that in a step that
// goes as planned nobody waits for a slot; otherwise a new one is made. The number of slots is then the peak of live
// tenants over planned time. When a step goes otherwise, the waits for former users keep it correct.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "plumb/cache/program.hpp"

namespace plumb {

class SlotPool {
 public:
  // The slot that has been free longest at that planned time.
  std::int32_t take(std::int64_t at) {
    if (next_ == free_.size() || free_[next_].since > at) {
      former_users_.emplace_back();
      return static_cast<std::int32_t>(former_users_.size()) - 1;
    }
    const std::int32_t slot = free_[next_++].slot;
    if (2 * next_ > free_.size() + 64) {
      free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(next_));
      next_ = 0;
    }
    return slot;
  }

  // `since`: when `last` and the other users have finished according to the plan.
  void give_back(std::int32_t slot, Wait last, std::span<const Wait> others, std::int64_t since) {
    std::vector<Wait>& users = former_users_[static_cast<std::size_t>(slot)];
    users.assign(others.begin(), others.end());
    users.push_back(last);
    // Nearly in order already: plans go forward in time.
    const FreeSlot freed{since, slot};
    free_.push_back(freed);
    std::size_t place = free_.size() - 1;
    for (; place > next_ && freed < free_[place - 1]; --place)
      free_[place] = free_[place - 1];
    free_[place] = freed;
  }

  // What must have finished before the slot may be written again; empty for a new slot.
  const std::vector<Wait>& former_users(std::int32_t slot) const {
    return former_users_[static_cast<std::size_t>(slot)];
  }
  std::int32_t num_slots() const { return static_cast<std::int32_t>(former_users_.size()); }

 private:
  struct FreeSlot {
    std::int64_t since = 0;
    std::int32_t slot = 0;
    bool operator<(const FreeSlot& other) const {
      return since < other.since || (since == other.since && slot < other.slot);
    }
  };
  std::vector<FreeSlot> free_;  // from next_ on, ascending
  std::size_t next_ = 0;
  std::vector<std::vector<Wait>> former_users_;
};

}  // namespace plumb
