// SPDX-License-Identifier: Apache-2.0
#include "csv_cells.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"

namespace plumb {
namespace {

constexpr std::size_t max_text_bytes = std::size_t{256} << 20;

std::string_view without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace

std::string place_of(const Cell& cell) {
  return fmt::format("row {} (rank {}), column {}", cell.row + 1, cell.row, cell.column + 1);
}

CellReader::CellReader(std::string_view text, std::string_view name) : rest_(text), name_(name) {
  if (text.size() > max_text_bytes) {
    throw InputError(fmt::format("{}: {} bytes are too large for a schedule, at most {} are read", name, text.size(),
                                 max_text_bytes));
  }
  if (text.starts_with("\xef\xbb\xbf") || text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    throw InputError(fmt::format("{}: begins with a byte order mark; save it as plain ASCII without one", name));
  }
  if (text.empty()) throw InputError(fmt::format("{}: the file is empty, expected one row per rank", name));
}

void CellReader::fail(const Cell& cell, std::string_view why) const {
  throw InputError(fmt::format("{}: {}: {}", name_, place_of(cell), why));
}

Cell CellReader::next(bool& row_ends) {
  Cell cell{row_, column_, {}};
  cell_is_open_ = false;
  const bool quoted = !rest_.empty() && rest_.front() == '"';
  cell.text = without_blanks(quoted ? quoted_text(cell) : take(std::min(rest_.find_first_of(",\r\n"), rest_.size())));
  row_ends = true;
  if (rest_.empty()) return cell;
  if (rest_.front() == ',') {
    rest_.remove_prefix(1);
    ++column_;
    cell_is_open_ = true;
    row_ends = false;
    return cell;
  }
  end_line(cell);
  ++row_;
  column_ = 0;
  return cell;
}

std::string_view CellReader::take(std::size_t size) {
  const std::string_view text = rest_.substr(0, size);
  rest_.remove_prefix(text.size());
  return text;
}

// No token needs a quote inside it, so a doubled quote is refused like anything else behind the closing one.
std::string_view CellReader::quoted_text(const Cell& cell) {
  take(1);
  const std::size_t close = rest_.find_first_of("\"\r\n");
  if (close == std::string_view::npos || rest_[close] != '"') {
    fail(cell, "the quote at its begin is never closed in that row");
  }
  const std::string_view text = take(close);
  take(1);
  if (!rest_.empty() && rest_.find_first_of(",\r\n") != 0) {
    fail(cell, "a comma or the end of the row must follow the closing quote");
  }
  return text;
}

void CellReader::end_line(const Cell& cell) {
  if (rest_.front() == '\r') {
    if (rest_.size() < 2 || rest_[1] != '\n') {
      fail(cell, "a carriage return without a line feed; rows end with LF or CRLF");
    }
    take(1);
  }
  take(1);
}

}  // namespace plumb
