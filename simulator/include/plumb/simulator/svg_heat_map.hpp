// SPDX-License-Identifier: Apache-2.0
//
// svg_heat_map.hpp: a table of numbers between zero and some largest value as a drawing: the darker, the larger.
//
// For shares of a whole: what a sublayer reads of each block. Cells are squares, rows run down, blank where there is no
// number; a scale stands beside the table. Lightness alone tells the value, so that it survives print and
// colour-blindness. The text is a complete SVG 1.1 document without scripts or outside references. Pure: the same
// input gives the same bytes.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace plumb {

struct HeatMap {
  // Any text, escaped here.
  std::string title;
  std::string subtitle;
  std::string row_title;
  std::string column_title;
  std::vector<std::string> rows;
  std::vector<std::string> columns;
  std::vector<std::optional<double>> cells;  // [row][column]; negative and not finite ones are drawn as blank
};

// Throws std::invalid_argument when there are not rows x columns cells, or none.
std::string svg_heat_map(const HeatMap& map);

}  // namespace plumb
