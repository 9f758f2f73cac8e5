// SPDX-License-Identifier: Apache-2.0
//
// countdown.hpp (private): what every microbatch still waits for, and whether that repeats.
//
// A table of counts, one row per microbatch, which go down to zero. Between two marks it remembers the first row it was
// asked about, so that finding out whether the present is a mark, some microbatches later, looks at few rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace plumb {

class Countdown {
 public:
  // Every row begins as `once`.
  Countdown(const std::vector<std::int32_t>& once, std::size_t num_rows)
      : width_(once.size()), num_rows_(num_rows), first_touched_(num_rows) {
    counts_.reserve(width_ * num_rows);
    for (std::size_t row = 0; row < num_rows; ++row)
      counts_.insert(counts_.end(), once.begin(), once.end());
  }

  // A count that is looked at decides as much as one that changes.
  std::int32_t operator()(std::size_t row, std::size_t column) { return at(row, column); }
  // The count after this.
  std::int32_t count_down(std::size_t row, std::size_t column) { return --at(row, column); }

  void mark() {
    if (marked_.empty()) {
      marked_ = counts_;
    } else if (first_touched_ < end_touched_) {
      std::copy(at(first_touched_), at(end_touched_), marked_.begin() + offset(first_touched_));
    }
    first_touched_ = num_rows_;
    end_touched_ = 0;
  }

  // True if every row from the first touched since the mark on stands where the row `later` before it stood at the
  // mark: then what happened since the mark can happen again, `later` rows on. Negative: from the last touched back,
  // rows before. REQUIRES a mark.
  bool repeats(int later) const {
    if (later > 0) {
      const std::size_t moved = first_touched_ + static_cast<std::size_t>(later);
      return moved >= num_rows_ || std::equal(at(moved), counts_.end(), marked_.begin() + offset(first_touched_));
    }
    const auto back = static_cast<std::size_t>(-later);
    return end_touched_ <= back || std::equal(at(0), at(end_touched_ - back), marked_.begin() + offset(back));
  }

  // As if what happened since the mark had happened `times` more, `later` rows on each time. REQUIRES repeats(later),
  // and that it would stay within the table. Marks.
  void repeat(std::size_t times, int later) {
    if (later > 0) {
      go_on(times, static_cast<std::size_t>(later));
      end_touched_ = num_rows_;
    } else {
      go_back(times, static_cast<std::size_t>(-later));
      first_touched_ = 0;
    }
    mark();
  }

 private:
  std::int32_t& at(std::size_t row, std::size_t column) {
    first_touched_ = std::min(first_touched_, row);
    end_touched_ = std::max(end_touched_, row + 1);
    return counts_[row * width_ + column];
  }
  // Rows that are left behind are as those that the first repetition left behind.
  void go_on(std::size_t times, std::size_t later) {
    const std::size_t first = first_touched_;
    const std::size_t distance = times * later;
    if (first + distance < num_rows_) {
      std::move_backward(at(first), at(num_rows_ - distance), counts_.begin() + offset(num_rows_));
    }
    for (std::size_t row = first + later; row < std::min(first + distance, num_rows_); ++row)
      std::copy(at(row - later), at(row - later + 1), counts_.begin() + offset(row));
  }
  void go_back(std::size_t times, std::size_t later) {
    const std::size_t end = end_touched_;
    const std::size_t distance = times * later;
    if (distance < end) std::move(at(distance), at(end), counts_.begin());
    for (std::size_t row = end - std::min(later, end); row-- > end - std::min(distance, end);)
      std::copy(at(row + later), at(row + later + 1), counts_.begin() + offset(row));
  }

  std::ptrdiff_t offset(std::size_t row) const { return static_cast<std::ptrdiff_t>(row * width_); }
  std::vector<std::int32_t>::const_iterator at(std::size_t row) const { return counts_.begin() + offset(row); }

  std::size_t width_;
  std::size_t num_rows_;
  std::vector<std::int32_t> counts_;  // [row][column]
  std::vector<std::int32_t> marked_;  // as they were at the mark
  std::size_t first_touched_;
  std::size_t end_touched_ = 0;
};

}  // namespace plumb
