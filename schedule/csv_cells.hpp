// SPDX-License-Identifier: Apache-2.0
//
// csv_cells.hpp (private): a text cut into cells without copying: a hundred million commas cost time, not memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plumb {

struct Cell {
  std::size_t row = 0;     // = rank
  std::size_t column = 0;  // in the file, blanks counted
  std::string_view text;   // without blanks around it
  friend bool operator==(const Cell&, const Cell&) = default;
};

// "row 2 (rank 1), column 3", as a person counts.
std::string place_of(const Cell& cell);

class CellReader {
 public:
  // Throws InputError if `text` is empty, too large (256 MiB) or begins with a byte order mark.
  CellReader(std::string_view text, std::string_view name);

  bool at_end() const { return rest_.empty() && !cell_is_open_; }

  // The next cell of the current row; `row_ends` tells whether it is the last one there. A line without any character
  // is one empty cell. Throws InputError for a quote or carriage return that is out of place.
  Cell next(bool& row_ends);

  [[noreturn]] void fail(const Cell& cell, std::string_view why) const;

 private:
  std::string_view take(std::size_t size);
  std::string_view quoted_text(const Cell& cell);
  void end_line(const Cell& cell);

  std::string_view rest_;
  std::string_view name_;
  std::size_t row_ = 0;
  std::size_t column_ = 0;
  bool cell_is_open_ = false;  // a comma was read last, so that even the end of the text is a cell
};

}  // namespace plumb
