// SPDX-License-Identifier: Apache-2.0
//
// wait_lists.hpp (private): short lists of waits while a rank is being lowered.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <vector>

#include "lower_period.hpp"
#include "plumb/cache/program.hpp"

namespace plumb {

// Computations before communication, each by its number: the flag is the lowest bit of the word.
inline bool before(Wait a, Wait b) { return std::rotr(bits_of(a), 1) < std::rotr(bits_of(b), 1); }

// std::sort asks more of two or three than this does.
inline void sort_few(std::span<Wait> waits) {
  if (waits.size() > 16) return std::sort(waits.begin(), waits.end(), before);
  for (std::size_t i = 1; i < waits.size(); ++i) {
    const Wait wait = waits[i];
    std::size_t place = i;
    for (; place > 0 && before(wait, waits[place - 1]); --place)
      waits[place] = waits[place - 1];
    waits[place] = wait;
  }
}

// Written field by field in its place: a record put together beside it is read back in other pieces than it was written
// in, and waits for that.
inline void add_release(std::vector<Release>& releases, Slot slot, Range waits) {
  Release& release = releases.emplace_back();
  release.slot = slot;
  release.waits.begin = waits.begin;
  release.waits.end = waits.end;
}

// Waits of receives whose slots are taken already, first in, first out.
class PostedWaits {
 public:
  void push(const std::vector<Wait>& waits) {
    waits_.insert(waits_.end(), waits.begin(), waits.end());
    ends_.push_back(waits_.size());
  }
  void pop(std::vector<Wait>& out) {
    out.assign(waits_.begin() + static_cast<std::ptrdiff_t>(begin_),
               waits_.begin() + static_cast<std::ptrdiff_t>(ends_[next_]));
    begin_ = ends_[next_++];
    if (next_ < ends_.size()) return;
    waits_.clear();
    ends_.clear();
    begin_ = next_ = 0;
  }
  bool empty() const { return next_ == ends_.size(); }

  // True if the waits are those of before, one period later.
  bool repeats(const PostedWaits& before, const Period& period) const {
    if (ends_.size() - next_ != before.ends_.size() - before.next_) return false;
    for (std::size_t i = 0; next_ + i < ends_.size(); ++i) {
      if (ends_[next_ + i] - begin_ != before.ends_[before.next_ + i] - before.begin_) return false;
    }
    for (std::size_t i = 0; begin_ + i < waits_.size(); ++i) {
      if (!(waits_[begin_ + i] == period.later(before.waits_[before.begin_ + i]))) return false;
    }
    return true;
  }
  void repeat(const Period& all) {
    for (std::size_t i = begin_; i < waits_.size(); ++i)
      waits_[i] = all.later(waits_[i]);
  }

 private:
  std::vector<Wait> waits_;
  std::vector<std::size_t> ends_;
  std::size_t begin_ = 0;
  std::size_t next_ = 0;
};

}  // namespace plumb
