// SPDX-License-Identifier: Apache-2.0
#include "svg_fold.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "periods.hpp"
#include "svg_text.hpp"

namespace plumb {
namespace {

constexpr double page_width = 1160;   // of a band
constexpr double page_height = 1700;  // of all bands together
constexpr double band_extra = 46;     // axis and space below the rows
constexpr int most_bands = 8;
constexpr int most_cells = 9000;
constexpr std::size_t most_ranks = 64;
constexpr double narrowest_cell = 3;

// Most computations are at least this long.
SimTime typical_duration(const Timeline& timeline, const Rows& rows) {
  std::vector<SimTime> durations;
  for (const RankId rank : rows.ranks) {
    for (const ComputeTimes& times : timeline.ranks[rank.index()].compute) {
      if (times.end > times.start) durations.push_back(times.end - times.start);
    }
  }
  if (durations.empty()) return timeline.step;
  const auto quarter = durations.begin() + static_cast<std::ptrdiff_t>(durations.size() / 4);
  std::nth_element(durations.begin(), quarter, durations.end());
  return *quarter;
}

std::int64_t cells_in(const Timeline& timeline, const Rows& rows, SimTime from, SimTime to) {
  std::int64_t cells = 0;
  for (const RankId rank : rows.ranks) {
    const std::vector<ComputeTimes>& times = timeline.ranks[rank.index()].compute;
    const auto first =
        std::partition_point(times.begin(), times.end(), [&](const ComputeTimes& t) { return t.end <= from; });
    const auto last = std::partition_point(first, times.end(), [&](const ComputeTimes& t) { return t.start < to; });
    cells += last - first;
  }
  return cells;
}

struct Shown {
  SimTime time{0};
  std::int64_t cells = 0;
};

Shown what_is_shown(const Timeline& timeline, const Rows& rows, const std::vector<AxisBreak>& breaks) {
  Shown shown;
  SimTime from{0};
  const auto show = [&](SimTime to) {
    shown.time += to - from;
    shown.cells += cells_in(timeline, rows, from, to);
  };
  for (const AxisBreak& gap : breaks) {
    show(gap.from);
    from = gap.to;
  }
  show(timeline.step);
  return shown;
}

// What to leave out: of each repetition all but one period, the largest first, while it saves more paper than the
// breaks take.
std::vector<AxisBreak> breaks_of(std::vector<Periods> all, double pixels_per_us, double line) {
  const auto spared = [](const Periods& periods) { return (periods.count - 1) * periods.length; };
  std::erase_if(all, [&](const Periods& p) { return to_us(spared(p)) * pixels_per_us < 2 * Axis::break_width; });
  std::stable_sort(all.begin(), all.end(), [&](const Periods& a, const Periods& b) { return spared(a) > spared(b); });
  const auto most = static_cast<std::size_t>(std::max(1.0, 0.4 * line / (2 * Axis::break_width)));
  all.resize(std::min(all.size(), most));
  std::sort(all.begin(), all.end(), [](const Periods& a, const Periods& b) { return a.begin < b.begin; });
  std::vector<AxisBreak> breaks;
  for (const Periods& periods : all) {
    breaks.push_back({periods.begin + periods.length,
                      periods.end(),
                      {fmt::format("{} equal periods", periods.count - 1),
                       fmt::format("of {} left out", time_text(periods.length, periods.length))}});
  }
  return breaks;
}

// The instant after which `shown` of the time has been drawn.
SimTime after_showing(SimTime shown, const std::vector<AxisBreak>& breaks) {
  SimTime from{0};
  for (const AxisBreak& gap : breaks) {
    if (shown <= gap.from - from) break;
    shown -= gap.from - from;
    from = gap.to;
  }
  return from + shown;
}

// Leaves out the middle, so that `keep` is drawn.
std::vector<AxisBreak> without_middle(const std::vector<AxisBreak>& breaks, SimTime shown, SimTime keep, SimTime step) {
  const SimTime from = after_showing(keep / 2, breaks);
  const SimTime to = after_showing(shown - keep / 2, breaks);
  std::vector<AxisBreak> kept;
  for (const AxisBreak& gap : breaks) {
    if (gap.to <= from) kept.push_back(gap);
  }
  kept.push_back({from, to, {time_text(to - from, step), "not shown"}});
  for (const AxisBreak& gap : breaks) {
    if (gap.from >= to) kept.push_back(gap);
  }
  return kept;
}

}  // namespace

double Rows::band_height() const { return height * static_cast<double>(ranks.size() + (gap_before > 0 ? 1 : 0)); }

double Rows::top(std::size_t row) const {
  return height * static_cast<double>(row + (gap_before > 0 && row >= gap_before ? 1 : 0));
}

Rows choose_rows(int num_ranks) {
  Rows rows;
  const auto count = static_cast<std::size_t>(num_ranks);
  rows.height = count <= 16 ? 22 : count <= 32 ? 16 : 12;
  for (std::size_t rank = 0; rank < count; ++rank) {
    if (count > most_ranks && rank == most_ranks / 2) {
      rows.gap_before = rank;
      rank = count - most_ranks / 2;
    }
    rows.ranks.push_back(RankId(rank));
  }
  return rows;
}

Axis fold(const Program& program, const Timeline& timeline, const Rows& rows) {
  const SimTime step = timeline.step;
  const double font = rows.height >= 16 ? 10 : 8;
  const std::string widest = fmt::to_string(program.layout.microbatches() - 1);
  const double typical_us = to_us(typical_duration(timeline, rows));
  double scale = std::max(rows.height >= 16 ? 18.0 : 12.0, text_width(widest, font) + 6) / typical_us;
  const int max_bands = std::clamp(static_cast<int>(page_height / (rows.band_height() + band_extra)), 1, most_bands);
  std::vector<AxisBreak> breaks;
  Shown shown = what_is_shown(timeline, rows, breaks);
  const auto room_us = [&] {  // what the line holds beside the breaks and the unused ends of bands before them
    return (max_bands * page_width - 2 * Axis::break_width * static_cast<double>(breaks.size())) / scale;
  };
  if (to_us(shown.time) > room_us() || shown.cells > most_cells) {
    breaks = breaks_of(find_periods(program, timeline), scale, max_bands * page_width);
    shown = what_is_shown(timeline, rows, breaks);
  }
  if (to_us(shown.time) > room_us()) {
    scale = std::max(narrowest_cell / typical_us, scale * room_us() / to_us(shown.time));
  }
  while (to_us(shown.time) > room_us() * 1.0001 || shown.cells > most_cells) {
    const double by_room = room_us() / to_us(shown.time);
    const double by_cells =
        static_cast<double>(most_cells) / static_cast<double>(std::max<std::int64_t>(1, shown.cells));
    const double keep = std::clamp(std::min(by_room, by_cells), 0.001, 0.95) * static_cast<double>(shown.time.count());
    breaks = without_middle(breaks, shown.time, SimTime(static_cast<std::int64_t>(keep)), step);
    const Shown now = what_is_shown(timeline, rows, breaks);
    if (now.time >= shown.time) break;
    shown = now;
  }
  const double line = to_us(shown.time) * scale + Axis::break_width * static_cast<double>(breaks.size());
  const int bands = std::clamp(static_cast<int>(std::ceil(line / page_width - 1e-9)), 1, max_bands);
  if (bands > 1 && breaks.empty()) scale *= bands * page_width / line;  // the last band is as full as the others
  return Axis(step, std::move(breaks), scale, bands > 1 ? page_width : line);
}

}  // namespace plumb
