// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <stdexcept>

#include "plumb/simulator/svg_heat_map.hpp"
#include "simulator/support/xml.hpp"
#include "support/catch.hpp"

using namespace plumb;
using namespace plumb::test;

namespace {

HeatMap triangle(std::size_t size) {
  HeatMap map;
  map.title = "What <each> reads";
  map.row_title = "sublayer";
  map.column_title = "source";
  for (std::size_t i = 0; i < size; ++i) {
    map.rows.push_back(std::to_string(i));
    map.columns.push_back("b" + std::to_string(i));
    for (std::size_t k = 0; k < size; ++k) {
      map.cells.push_back(k <= i ? std::optional(1.0 / static_cast<double>(i + 1)) : std::nullopt);
    }
  }
  return map;
}

std::vector<XmlElement> cells_of(const XmlDocument& document) {
  std::vector<XmlElement> cells;
  for (const XmlElement& element : document.elements) {
    if (element.name == "rect" && element.attributes.contains("class")) {
      cells.push_back(element);
    }
  }
  return cells;
}

}  // namespace

TEST_CASE("a heat map has one square per number, darker where it is larger, all on the page", "[simulator]") {
  for (const std::size_t size : {std::size_t{1}, std::size_t{9}, std::size_t{187}}) {
    const XmlDocument document = parse_xml(svg_heat_map(triangle(size)));
    REQUIRE(document.fault.empty());
    const XmlElement& page = document.elements.at(0);
    const std::vector<XmlElement> cells = cells_of(document);
    REQUIRE(cells.size() == size * (size + 1) / 2);
    const auto lightness = [](const XmlElement& cell) {
      return std::stol(cell.attributes.at("fill").substr(1, 2), nullptr, 16);
    };
    CHECK(lightness(cells.front()) <= lightness(cells.back()));
    CHECK((size == 1 || cells.front().attributes.at("fill") != cells.back().attributes.at("fill")));
    for (const XmlElement& cell : cells) {
      CHECK(number(cell, "x") + number(cell, "width") <= number(page, "width"));
      CHECK(number(cell, "y") + number(cell, "height") <= number(page, "height"));
    }
  }
}

TEST_CASE("what is no number is left blank, and a table of zeros is drawn", "[simulator]") {
  HeatMap map = triangle(3);
  map.cells[0] = std::numeric_limits<double>::quiet_NaN();
  map.cells[3] = -1.0;
  CHECK(cells_of(parse_xml(svg_heat_map(map))).size() == 4);
  map.cells.assign(9, 0.0);
  CHECK(cells_of(parse_xml(svg_heat_map(map))).size() == 9);
}

TEST_CASE("a heat map without its cells is refused", "[simulator]") {
  HeatMap map = triangle(3);
  map.cells.pop_back();
  CHECK_THROWS_AS(svg_heat_map(map), std::invalid_argument);
  CHECK_THROWS_AS(svg_heat_map(HeatMap{}), std::invalid_argument);
}
