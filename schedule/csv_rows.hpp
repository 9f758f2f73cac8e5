// SPDX-License-Identifier: Apache-2.0
//
// csv_rows.hpp (private): what the two CSV dialects have in common: rows of items, and the layout they imply.
//
// `Item` is an Action or a CommsItem; for_each_compute(item, visit) must visit its computations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "csv_cells.hpp"
#include "for_each_compute.hpp"
#include "numbering.hpp"
#include "plumb/schedule/action.hpp"
#include "plumb/schedule/csv_dialect.hpp"
#include "plumb/schedule/error.hpp"
#include "plumb/schedule/layout.hpp"
#include "plumb/schedule/schedule.hpp"

namespace plumb {

template <class Item>
struct CsvRows {
  std::vector<std::vector<Item>> items;
  std::vector<std::vector<std::uint32_t>> columns;  // of each item, for messages about the layout
  CsvDialect dialect = CsvDialect::current;         // in which messages spell
};

// `parse(token)` makes an Item or throws InputError. An empty cell is skipped if `blanks` is true; otherwise it is
// refused unless it is all its row holds.
template <class Item, class Parse>
CsvRows<Item> read_csv_rows(std::string_view text, std::string_view name, bool blanks, Parse&& parse) {
  constexpr std::size_t max_items = std::size_t{1} << 24;  // half a gigabyte once read
  constexpr std::size_t max_rows = 4096;                   // the largest P of a layout
  CellReader cells(text, name);
  CsvRows<Item> rows;
  std::size_t num_items = 0;
  bool row_ends = true;
  while (!cells.at_end()) {
    const bool row_begins = row_ends;
    if (row_begins) {
      if (rows.items.size() == max_rows) {
        throw InputError(fmt::format("{}: more than {} rows; a row is a rank", name, max_rows));
      }
      rows.items.emplace_back();
      rows.columns.emplace_back();
    }
    const Cell cell = cells.next(row_ends);
    if (cell.text.empty()) {
      if (!blanks && !(row_begins && row_ends)) {
        cells.fail(cell, "an empty cell; a schedule with communication has no bubbles (is there a comma too many?)");
      }
      continue;
    }
    if (++num_items > max_items) {
      throw InputError(fmt::format("{}: more than {} actions are too many to read", name, max_items));
    }
    try {
      rows.items.back().push_back(parse(cell.text));
    } catch (const InputError& error) {
      cells.fail(cell, error.what());
    }
    rows.columns.back().push_back(static_cast<std::uint32_t>(cell.column));
  }
  return rows;
}

template <class Item, class Visit>
void for_each_compute(const CsvRows<Item>& rows, Visit&& visit) {
  for (std::size_t row = 0; row < rows.items.size(); ++row) {
    for (std::size_t i = 0; i < rows.items[row].size(); ++i) {
      const Cell cell{row, rows.columns[row][i], {}};
      for_each_compute(rows.items[row][i], [&](const Compute& compute) { visit(cell, compute); });
    }
  }
}

// Why a number does not exist in the layout, or nothing.
inline std::string beyond(const Layout& layout, ChunkId chunk, Microbatch microbatch) {
  if (chunk.value >= layout.num_chunks()) {
    return fmt::format("there is no chunk {}, P={} V={} has 0..{}", chunk.value, layout.pp(), layout.vp(),
                       layout.num_chunks() - 1);
  }
  if (microbatch.value >= layout.microbatches()) {
    return fmt::format("there is no microbatch {}, only 0..{}", microbatch.value, layout.microbatches() - 1);
  }
  return {};
}

// Why the computation does not fit the layout, or nothing.
inline std::string misfit(const Cell& cell, const Compute& compute, const Layout& layout) {
  std::string why = beyond(layout, compute.chunk, compute.microbatch);
  if (why.empty() && layout.rank_of(compute.chunk).index() != cell.row) {
    why = fmt::format("placement {} runs chunk {} on rank {}", to_string(layout.placement()), compute.chunk.value,
                      layout.rank_of(compute.chunk).value);
  }
  return why;
}

// The first computation that does not fit the layout and why, or nothing.
template <class Item>
std::string misfit(const CsvRows<Item>& rows, const Layout& layout) {
  std::string why;
  for_each_compute(rows, [&](const Cell& cell, const Compute& compute) {
    if (!why.empty()) return;
    const std::string here = misfit(cell, compute, layout);
    if (!here.empty()) why = fmt::format("{}: {}: {}", place_of(cell), to_string(compute, rows.dialect), here);
  });
  return why;
}

template <class Item>
std::size_t num_misfits(const CsvRows<Item>& rows, const Layout& layout) {
  std::size_t count = 0;
  for_each_compute(rows, [&](const Cell& cell, const Compute& compute) {
    count += layout.rank_of(compute.chunk).index() != cell.row ? 1 : 0;
  });
  return count;
}

// P = rows, V = chunks / rows, M = largest microbatch + 1, the placement that agrees with the rows.
template <class Item>
Layout infer_layout(const CsvRows<Item>& rows, std::string_view name, CsvFit fit) {
  int num_chunks = 0;
  int microbatches = 0;
  std::pair<Cell, Compute> deepest;  // where the largest numbers stand, should they be too large
  std::pair<Cell, Compute> last;
  const auto where = [&](const std::pair<Cell, Compute>& place) {
    return fmt::format("{}: {}", place_of(place.first), to_string(place.second, rows.dialect));
  };
  for_each_compute(rows, [&](const Cell& cell, const Compute& compute) {
    if (compute.chunk.value >= num_chunks) deepest = {cell, compute};
    if (compute.microbatch.value >= microbatches) last = {cell, compute};
    num_chunks = std::max(num_chunks, compute.chunk.value + 1);
    microbatches = std::max(microbatches, compute.microbatch.value + 1);
  });
  if (num_chunks == 0) throw InputError(fmt::format("{}: holds no computation at all", name));
  const int pp = static_cast<int>(rows.items.size());
  if (num_chunks % pp != 0) {
    const auto idle = std::find_if(rows.items.begin(), rows.items.end(), [](const auto& row) { return row.empty(); });
    const std::string hint =
        idle == rows.items.end() ? "is a row missing?" : fmt::format("row {} is empty", idle - rows.items.begin() + 1);
    throw InputError(fmt::format("{}: {}: {} rows cannot share {} chunks evenly (the largest chunk is {}); {}", name,
                                 where(deepest), pp, num_chunks, num_chunks - 1, hint));
  }
  std::string not_loop;
  std::string not_vee;
  try {
    const Layout loop(pp, num_chunks / pp, microbatches, Placement::loop);
    const Layout vee(pp, num_chunks / pp, microbatches, Placement::vee);
    not_loop = misfit(rows, loop);
    if (not_loop.empty()) return loop;
    not_vee = misfit(rows, vee);
    if (not_vee.empty()) return vee;
    if (fit == CsvFit::nearest) return num_misfits(rows, vee) < num_misfits(rows, loop) ? vee : loop;
  } catch (const InputError& error) {
    const std::string places = deepest == last ? where(deepest) : fmt::format("{} and {}", where(deepest), where(last));
    throw InputError(fmt::format("{}: {}: {}", name, places, error.what()));
  }
  throw InputError(fmt::format("{}: fits neither placement: {}; {}", name, not_loop, not_vee));
}

template <class Item>
bool holds_only_forwards(const CsvRows<Item>& rows) {
  bool forward_only = true;
  for_each_compute(
      rows, [&](const Cell&, const Compute& compute) { forward_only = forward_only && compute.op == Op::forward; });
  return forward_only;
}

// Throws if all that is wrong with the computations is that microbatches are not numbered from 0.
template <class Item>
void require_numbered(const CsvRows<Item>& rows, const Layout& layout, std::string_view name) {
  Schedule schedule{std::string(name), layout, {}, holds_only_forwards(rows)};
  std::vector<std::vector<Cell>> cells(rows.items.size());
  schedule.ranks.resize(rows.items.size());
  for_each_compute(rows, [&](const Cell& cell, const Compute& compute) {
    schedule.ranks[cell.row].push_back({compute, std::nullopt});
    cells[cell.row].push_back(cell);
  });
  const std::vector<ScheduleFault> faults = find_misnumbered(schedule);
  if (faults.empty()) return;
  const ScheduleFault& fault = faults.front();
  throw InputError(fmt::format("{}: {}: {}: {}", name, place_of(cells[fault.rank.index()][fault.column]),
                               respelled(fault.token, rows.dialect), fault.why));
}

template <class Item>
void require_fit(const CsvRows<Item>& rows, const Layout& layout, std::string_view name) {
  if (rows.items.size() != static_cast<std::size_t>(layout.pp())) {
    throw InputError(fmt::format("{}: {} rows, but P={} needs one row per rank", name, rows.items.size(), layout.pp()));
  }
  const std::string why = misfit(rows, layout);
  if (why.empty()) return;
  require_numbered(rows, layout, name);
  throw InputError(fmt::format("{}: {}", name, why));
}

template <class Item>
Layout layout_of(const CsvRows<Item>& rows, std::string_view name, const std::optional<Layout>& layout, CsvFit fit) {
  if (!layout) return infer_layout(rows, name, fit);
  require_fit(rows, *layout, name);
  return *layout;
}

}  // namespace plumb
