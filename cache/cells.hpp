// SPDX-License-Identifier: Apache-2.0
//
// cells.hpp (private): what lowering knows about each microbatch, one row of cells for each, and whether that repeats.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lower_period.hpp"
#include "lower_shape.hpp"

namespace plumb {

// What a filled cell will hold, that much later, for a microbatch that is later by as much.
inline std::int32_t cell_later(CellKind kind, std::int32_t value, const Period& by) {
  switch (kind) {
    case CellKind::value_slot:
      return by.slots[static_cast<std::size_t>(SlotClass::value)](value);
    case CellKind::gradient_slot:
      return by.slots[static_cast<std::size_t>(SlotClass::gradient)](value);
    case CellKind::count:
      return value;
    case CellKind::compute:
      return value + by.computes;
    case CellKind::comm:
      return value + by.comms;
  }
  return value;
}

// All cells begin as -1. Remembers which rows were asked for since the last mark.
class Cells {
 public:
  Cells(CellId per_microbatch, int microbatches, std::vector<std::int32_t>& memory,
        std::vector<std::int32_t>& marked_memory)
      : width_(static_cast<std::size_t>(per_microbatch)),
        num_rows_(static_cast<std::size_t>(microbatches)),
        cells_(memory),
        marked_(marked_memory),
        first_touched_(num_rows_) {
    cells_.assign(width_ * num_rows_, -1);
  }

  std::int32_t* row(Microbatch m) {
    first_touched_ = std::min(first_touched_, m.index());
    end_touched_ = std::max(end_touched_, m.index() + 1);
    return cells_.data() + m.index() * width_;
  }

  void mark() {
    if (!has_mark_) {
      marked_ = cells_;
      has_mark_ = true;
    } else if (first_touched_ < end_touched_) {
      std::copy(at(first_touched_), at(end_touched_), marked_.data() + first_touched_ * width_);
    }
    first_touched_ = num_rows_;
    end_touched_ = 0;
  }

  // same(cell, before, now) for every cell of every row that was touched since the mark, or may be on the way, with the
  // row `later` before it as it was at the mark; false as soon as one is.
  template <class Same>
  bool repeats(std::size_t later, Same&& same) const {
    for (std::size_t row = first_touched_; row + later < num_rows_; ++row) {
      const std::int32_t* const before = marked_.data() + row * width_;
      const std::int32_t* const now = at(row + later);
      for (std::size_t cell = 0; cell < width_; ++cell) {
        if (!same(cell, before[cell], now[cell])) return false;
      }
    }
    return true;
  }

  // As if what happened since the mark had happened `times` more, `later` rows on each time. once(cell, value) and
  // all(cell, value) make a value one period, and all of them, later. Marks nothing. REQUIRES repeats.
  template <class Once, class All>
  void repeat(std::size_t times, std::size_t later, Once&& once, All&& all) {
    const std::size_t distance = times * later;
    const std::size_t first = first_touched_;
    for (std::size_t row = std::min(num_rows_, end_touched_ + distance); row-- > first + distance;)
      change(row - distance, row, all);
    for (std::size_t row = first + later; row < first + distance; ++row)
      change(row - later, row, once);
    end_touched_ = num_rows_;
  }

 private:
  const std::int32_t* at(std::size_t row) const { return cells_.data() + row * width_; }
  template <class Change>
  void change(std::size_t from, std::size_t to, Change&& changed) {
    for (std::size_t cell = 0; cell < width_; ++cell)
      cells_[to * width_ + cell] = changed(cell, cells_[from * width_ + cell]);
  }

  std::size_t width_;
  std::size_t num_rows_;
  std::vector<std::int32_t>& cells_;
  std::vector<std::int32_t>& marked_;  // as they were at the mark
  bool has_mark_ = false;
  std::size_t first_touched_;
  std::size_t end_touched_ = 0;
};

}  // namespace plumb
