// SPDX-License-Identifier: Apache-2.0
//
// event_queue.hpp: what will happen at a known time, for simulations whose time never goes back.
//
// A radix heap: events lie in one of 64 buckets by the highest bit in which their time differs from the present, so
// that each is moved a few times at most and nothing is compared twice. Events of one instant come out in the order in
// which they went in. Times are not negative and never before the present. Not thread-safe.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

namespace plumb {

template <class Payload>
class EventQueue {
 public:
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  void push(std::int64_t time, const Payload& payload) {
    const std::size_t bucket = bucket_of(time);
    buckets_[bucket].push_back({time, payload});
    filled_ |= std::uint64_t{1} << bucket;
  }

  // Goes on to the next instant at which something happens and returns it; `never` if nothing will. That is the present
  // one as long as pop() has not taken everything of it.
  std::int64_t advance() {
    if (next_ < buckets_[0].size()) return now_;
    buckets_[0].clear();
    next_ = 0;
    filled_ &= ~std::uint64_t{1};
    if (filled_ == 0) return never;
    std::vector<Event>& soonest = buckets_[static_cast<std::size_t>(std::countr_zero(filled_))];
    filled_ &= filled_ - 1;
    now_ = never;
    for (const Event& event : soonest) {
      if (event.time < now_) now_ = event.time;
    }
    for (const Event& event : soonest) {
      push(event.time, event.payload);
    }
    soonest.clear();
    return now_;
  }

  // Takes the next event of the present instant, also one pushed during it; false if there is none.
  bool pop(Payload& payload) {
    if (next_ == buckets_[0].size()) return false;
    payload = buckets_[0][next_++].payload;
    return true;
  }

  // visit(time, payload) for all that is to come; those of one instant in the order in which they went in.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      for (std::size_t i = bucket == 0 ? next_ : 0; i < buckets_[bucket].size(); ++i)
        visit(buckets_[bucket][i].time, buckets_[bucket][i].payload);
    }
  }

  // Forgets all events and goes to that time.
  void restart(std::int64_t now) {
    for (std::vector<Event>& bucket : buckets_)
      bucket.clear();
    filled_ = 0;
    next_ = 0;
    now_ = now;
  }

 private:
  struct Event {
    std::int64_t time;
    Payload payload;
  };

  std::size_t bucket_of(std::int64_t time) const {
    return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(time ^ now_)));
  }

  std::array<std::vector<Event>, 64> buckets_;  // [0]: now
  std::uint64_t filled_ = 0;                    // which buckets hold something
  std::int64_t now_ = 0;
  std::size_t next_ = 0;  // in bucket 0
};

}  // namespace plumb
