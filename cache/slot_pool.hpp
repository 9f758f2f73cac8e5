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

#include "lower_period.hpp"
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
    const std::uint32_t begin = size_of_users();
    users_.insert(users_.end(), others.begin(), others.end());
    users_.push_back(last);
    former_users_[static_cast<std::size_t>(slot)] = {begin, size_of_users()};
    // Nearly in order already: plans go forward in time.
    const FreeSlot freed{since, slot};
    free_.push_back(freed);
    std::size_t place = free_.size() - 1;
    for (; place > next_ && freed.since < free_[place - 1].since; --place)
      free_[place] = free_[place - 1];
    free_[place] = freed;
  }

  // What must have finished before the slot may be written again; empty for a new slot.
  std::span<const Wait> former_users(std::int32_t slot) const {
    const Range range = former_users_[static_cast<std::size_t>(slot)];
    return std::span(users_).subspan(range.begin, range.size());
  }
  // The free slots with their former users, at some moment.
  struct Free {
    std::int64_t since = 0;
    std::int32_t slot = 0;
    std::uint32_t end_of_users = 0;
  };
  struct State {
    std::int32_t num_slots = 0;
    std::vector<Free> free;
    std::vector<Wait> users;
  };
  State state() const {
    State now{.num_slots = num_slots(), .free = {}, .users = {}};
    now.free.reserve(free_.size() - next_);
    for (std::size_t i = next_; i < free_.size(); ++i) {
      const std::span<const Wait> users = former_users(free_[i].slot);
      now.users.insert(now.users.end(), users.begin(), users.end());
      now.free.push_back({free_[i].since, free_[i].slot, static_cast<std::uint32_t>(now.users.size())});
    }
    return now;
  }

  // True if the same slots but for their names are free in the same order as before, one period later; notes the names.
  bool repeats(const State& before, const Period& period, SlotMap& map) const {
    if (num_slots() != before.num_slots || free_.size() - next_ != before.free.size()) return false;
    auto user = before.users.begin();
    for (std::size_t i = 0; i < before.free.size(); ++i) {
      const Free& then = before.free[i];
      const FreeSlot& now = free_[next_ + i];
      const auto end = before.users.begin() + static_cast<std::ptrdiff_t>(then.end_of_users);
      const std::span<const Wait> users = former_users(now.slot);
      const bool same_users =
          std::equal(user, end, users.begin(), users.end(), [&](Wait a, Wait b) { return b == period.later(a); });
      if (!same_users || now.since != then.since + period.duration || !map.match(then.slot, now.slot)) return false;
      user = end;
    }
    return true;
  }

  // Goes on to where it will be after that time. Only free slots have former users who matter.
  void repeat(const Period& all, const SlotMap& map) {
    std::vector<Range> users(former_users_.size());
    for (std::size_t i = next_; i < free_.size(); ++i) {
      FreeSlot& free = free_[i];
      const Range mine = former_users_[static_cast<std::size_t>(free.slot)];
      for (Wait& wait : std::span(users_).subspan(mine.begin, mine.size()))
        wait = all.later(wait);
      free = {free.since + all.duration, map(free.slot)};
      users[static_cast<std::size_t>(free.slot)] = mine;
    }
    former_users_ = std::move(users);
  }

  std::int32_t num_slots() const { return static_cast<std::int32_t>(former_users_.size()); }

 private:
  struct FreeSlot {
    std::int64_t since = 0;
    std::int32_t slot = 0;
  };
  std::vector<FreeSlot> free_;  // from next_ on, ascending; of one moment in the order in which they were given back
  std::size_t next_ = 0;
  std::uint32_t size_of_users() const { return static_cast<std::uint32_t>(users_.size()); }

  std::vector<Range> former_users_;  // [slot] in users_
  std::vector<Wait> users_;          // of all slots, the latest at the end
};

}  // namespace plumb
