// SPDX-License-Identifier: Apache-2.0
//
// slot_pool.hpp (private): the slots of one class while a program is being lowered.
//
// The longest free slot is taken first, so that its former users have most likely finished; a new one only if none is
// free. The number of slots is then exactly the peak of live tenants along the order.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "plumb/cache/program.hpp"

namespace plumb {

class SlotPool {
 public:
  std::int32_t take() {
    if (free_.empty()) {
      former_users_.emplace_back();
      return static_cast<std::int32_t>(former_users_.size()) - 1;
    }
    const std::int32_t slot = free_.front();
    free_.pop_front();
    return slot;
  }

  void give_back(std::int32_t slot, std::vector<Wait> users) {
    former_users_[static_cast<std::size_t>(slot)] = std::move(users);
    free_.push_back(slot);
  }

  // What must have finished before the slot may be written again; empty for a new slot.
  const std::vector<Wait>& former_users(std::int32_t slot) const {
    return former_users_[static_cast<std::size_t>(slot)];
  }
  std::int32_t num_slots() const { return static_cast<std::int32_t>(former_users_.size()); }

 private:
  std::deque<std::int32_t> free_;
  std::vector<std::vector<Wait>> former_users_;
};

}  // namespace plumb
