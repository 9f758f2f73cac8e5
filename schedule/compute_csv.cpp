// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/compute_csv.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "plumb/schedule/error.hpp"
#include "quote.hpp"

namespace plumb {
namespace {

constexpr std::size_t max_text_bytes = std::size_t{128} << 20;
constexpr std::size_t max_actions = std::size_t{1} << 24;  // half a gigabyte once read
constexpr std::size_t max_rows = 4096;                     // the largest P of a layout

struct Cell {
  std::size_t row = 0;     // = rank
  std::size_t column = 0;  // in the file, blanks counted
  std::string_view text;
};

std::string_view without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Cuts the text into cells without copying: a row of a hundred million commas costs time, not memory.
class CellReader {
 public:
  CellReader(std::string_view text, std::string_view name) : rest_(text), name_(name) {}

  std::string where(const Cell& cell) const {
    return fmt::format("{}: row {} (rank {}), column {}", name_, cell.row + 1, cell.row, cell.column + 1);
  }

  bool at_end() const { return rest_.empty(); }

  // The next cell of the current row; `row_ends` tells whether it is the last one there.
  Cell next(bool& row_ends) {
    Cell cell{row_, column_, {}};
    cell.text = !rest_.empty() && rest_.front() == '"' ? quoted_text(cell) : plain_text();
    row_ends = true;
    if (rest_.empty()) return cell;
    if (rest_.front() == ',') {
      rest_.remove_prefix(1);
      ++column_;
      row_ends = false;
      return cell;
    }
    end_line(cell);
    ++row_;
    column_ = 0;
    return cell;
  }

 private:
  std::string_view take(std::size_t size) {
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(text.size());
    return text;
  }

  std::string_view plain_text() { return take(std::min(rest_.find_first_of(",\r\n"), rest_.size())); }

  // No token needs a quote inside it, so a doubled quote is left to fail as a token.
  std::string_view quoted_text(const Cell& cell) {
    take(1);
    const std::size_t close = rest_.find_first_of("\"\r\n");
    if (close == std::string_view::npos || rest_[close] != '"') {
      throw InputError(fmt::format("{}: the quote at its begin is never closed in that row", where(cell)));
    }
    const std::string_view text = take(close);
    take(1);
    if (!rest_.empty() && rest_.find_first_of(",\r\n") != 0) {
      throw InputError(fmt::format("{}: a comma or the end of the row must follow the closing quote", where(cell)));
    }
    return text;
  }

  void end_line(const Cell& cell) {
    if (rest_.front() == '\r') {
      if (rest_.size() < 2 || rest_[1] != '\n') {
        throw InputError(
            fmt::format("{}: a carriage return without a line feed; rows end with LF or CRLF", where(cell)));
      }
      take(1);
    }
    take(1);
  }

  std::string_view rest_;
  std::string_view name_;
  std::size_t row_ = 0;
  std::size_t column_ = 0;
};

// The rows as read, and for each action the column it came from, for messages about the layout.
struct Rows {
  std::vector<std::vector<Action>> actions;
  std::vector<std::vector<std::uint32_t>> columns;
};

void require_plain_text(std::string_view text, std::string_view name) {
  if (text.size() > max_text_bytes) {
    throw InputError(fmt::format("{}: {} bytes are too large for a schedule, at most {} are read", name, text.size(),
                                 max_text_bytes));
  }
  if (text.starts_with("\xef\xbb\xbf") || text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    throw InputError(fmt::format("{}: begins with a byte order mark; save it as plain ASCII without one", name));
  }
  if (text.empty()) throw InputError(fmt::format("{}: the file is empty, expected one row per rank", name));
}

Rows read_rows(CellReader cells, std::string_view name) {
  Rows rows;
  std::size_t num_actions = 0;
  bool row_ends = true;
  while (!cells.at_end()) {
    if (row_ends) {
      if (rows.actions.size() == max_rows) {
        throw InputError(fmt::format("{}: more than {} rows; a row is a rank", name, max_rows));
      }
      rows.actions.emplace_back();
      rows.columns.emplace_back();
    }
    const Cell cell = cells.next(row_ends);
    const std::string_view token = without_blanks(cell.text);
    if (token.empty()) continue;
    if (++num_actions > max_actions) {
      throw InputError(fmt::format("{}: more than {} actions are too many to read", name, max_actions));
    }
    try {
      rows.actions.back().push_back(parse_action(token));
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}: {}", cells.where(cell), error.what()));
    }
    rows.columns.back().push_back(static_cast<std::uint32_t>(cell.column));
  }
  return rows;
}

template <class Visit>
void for_each_compute(const Rows& rows, Visit&& visit) {
  for (std::size_t row = 0; row < rows.actions.size(); ++row) {
    for (std::size_t i = 0; i < rows.actions[row].size(); ++i) {
      const Cell cell{row, rows.columns[row][i], {}};
      visit(cell, rows.actions[row][i].first);
      if (rows.actions[row][i].second) visit(cell, *rows.actions[row][i].second);
    }
  }
}

std::string at(const Cell& cell, const Compute& compute) {
  return fmt::format("row {} (rank {}), column {}: {}", cell.row + 1, cell.row, cell.column + 1, to_string(compute));
}

// Why the rows do not fit the layout, or nothing.
std::string misfit(const Rows& rows, const Layout& layout) {
  std::string why;
  for_each_compute(rows, [&](const Cell& cell, const Compute& compute) {
    if (!why.empty()) return;
    if (compute.chunk.value >= layout.num_chunks()) {
      why = fmt::format("{}: there is no chunk {}, P={} V={} has 0..{}", at(cell, compute), compute.chunk.value,
                        layout.pp(), layout.vp(), layout.num_chunks() - 1);
    } else if (compute.microbatch.value >= layout.microbatches()) {
      why = fmt::format("{}: there is no microbatch {}, only 0..{}", at(cell, compute), compute.microbatch.value,
                        layout.microbatches() - 1);
    } else if (layout.rank_of(compute.chunk).index() != cell.row) {
      why = fmt::format("{}: placement {} runs chunk {} on rank {}", at(cell, compute), to_string(layout.placement()),
                        compute.chunk.value, layout.rank_of(compute.chunk).value);
    }
  });
  return why;
}

Layout infer_layout(const Rows& rows, std::string_view name) {
  int num_chunks = 0;
  int microbatches = 0;
  for_each_compute(rows, [&](const Cell&, const Compute& compute) {
    num_chunks = std::max(num_chunks, compute.chunk.value + 1);
    microbatches = std::max(microbatches, compute.microbatch.value + 1);
  });
  if (num_chunks == 0) throw InputError(fmt::format("{}: holds no action at all", name));
  const int pp = static_cast<int>(rows.actions.size());
  if (num_chunks % pp != 0) {
    const auto idle =
        std::find_if(rows.actions.begin(), rows.actions.end(), [](const auto& row) { return row.empty(); });
    const std::string hint = idle == rows.actions.end()
                                 ? "is a row missing?"
                                 : fmt::format("row {} is empty", idle - rows.actions.begin() + 1);
    throw InputError(fmt::format("{}: {} rows cannot share {} chunks evenly (the largest chunk is {}); {}", name, pp,
                                 num_chunks, num_chunks - 1, hint));
  }
  try {
    const Layout loop(pp, num_chunks / pp, microbatches, Placement::loop);
    const Layout vee(pp, num_chunks / pp, microbatches, Placement::vee);
    const std::string not_loop = misfit(rows, loop);
    if (not_loop.empty()) return loop;
    const std::string not_vee = misfit(rows, vee);
    if (not_vee.empty()) return vee;
    throw InputError(fmt::format("fits neither placement: {}; {}", not_loop, not_vee));
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", name, error.what()));
  }
}

void require_fit(const Rows& rows, const Layout& layout, std::string_view name) {
  if (rows.actions.size() != static_cast<std::size_t>(layout.pp())) {
    throw InputError(
        fmt::format("{}: {} rows, but P={} needs one row per rank", name, rows.actions.size(), layout.pp()));
  }
  const std::string why = misfit(rows, layout);
  if (!why.empty()) throw InputError(fmt::format("{}: {}", name, why));
}

}  // namespace

std::string write_compute_csv(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Action>& actions : schedule.ranks) {
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (i != 0) text += ',';
      text += to_string(actions[i]);
    }
    text += "\r\n";
  }
  return text;
}

Schedule read_compute_csv(std::string_view text, std::string_view name, std::optional<Layout> layout) {
  require_plain_text(text, name);
  Rows rows = read_rows(CellReader(text, name), name);
  if (layout) {
    require_fit(rows, *layout, name);
  } else {
    layout = infer_layout(rows, name);
  }
  bool forward_only = true;
  for_each_compute(
      rows, [&](const Cell&, const Compute& compute) { forward_only = forward_only && compute.op == Op::forward; });
  return Schedule{std::string(name), *layout, std::move(rows.actions), forward_only};
}

}  // namespace plumb
