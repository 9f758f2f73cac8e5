// SPDX-License-Identifier: Apache-2.0
//
// slot_pool.hpp (private): the slots of one class while a program is being lowered.
//
// A slot is taken again only if its former users have finished by then according to the plan, so that in a step that
// goes as planned nobody waits for a slot; otherwise a new one is made. The number of slots is then the peak of live
// tenants over planned time. When a step goes otherwise, the waits for former users keep it correct.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "plumb/cache/program.hpp"

namespace plumb {

class SlotPool {
 public:
  // The slot that has been free longest at that planned time.
  std::int32_t take(std::int64_t at) {
    if (free_.empty() || free_.top().first > at) {
      former_users_.emplace_back();
      return static_cast<std::int32_t>(former_users_.size()) - 1;
    }
    const std::int32_t slot = free_.top().second;
    free_.pop();
    return slot;
  }

  // `free_at`: when the last of `users` has finished according to the plan.
  void give_back(std::int32_t slot, const std::vector<Wait>& users, std::int64_t free_at) {
    former_users_[static_cast<std::size_t>(slot)].assign(users.begin(), users.end());
    free_.emplace(free_at, slot);
  }

  // What must have finished before the slot may be written again; empty for a new slot.
  const std::vector<Wait>& former_users(std::int32_t slot) const {
    return former_users_[static_cast<std::size_t>(slot)];
  }
  std::int32_t num_slots() const { return static_cast<std::int32_t>(former_users_.size()); }

 private:
  using FreeSlot = std::pair<std::int64_t, std::int32_t>;  // since when, slot
  std::priority_queue<FreeSlot, std::vector<FreeSlot>, std::greater<>> free_;
  std::vector<std::vector<Wait>> former_users_;
};

}  // namespace plumb
