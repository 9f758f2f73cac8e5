// SPDX-License-Identifier: Apache-2.0
#include "plumb/schedule/compute_csv.hpp"

#include <string>
#include <utility>

#include "csv_rows.hpp"

namespace plumb {

std::string write_compute_csv(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Action>& actions : schedule.ranks) {
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (i != 0) text += ',';
      text += to_string(actions[i]);
    }
    // A row must hold a cell, and torch's writer quotes a single empty one.
    if (actions.empty()) text += "\"\"";
    text += "\r\n";
  }
  return text;
}

Schedule read_compute_csv(std::string_view text, std::string_view name, std::optional<Layout> layout,
                          CsvDialect dialect, CsvColumns* columns, CsvFit fit) {
  auto rows =
      read_csv_rows<Action>(text, name, true, [&](std::string_view token) { return parse_action(token, dialect); });
  rows.dialect = dialect;
  const Layout fitting = layout_of(rows, name, layout, fit);
  const bool forward_only = holds_only_forwards(rows);
  if (columns != nullptr) *columns = std::move(rows.columns);
  return Schedule{std::string(name), fitting, std::move(rows.items), forward_only};
}

}  // namespace plumb
