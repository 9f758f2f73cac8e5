// SPDX-License-Identifier: Apache-2.0
#include "plumb/simulator/svg_heat_map.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

#include "svg_text.hpp"

namespace plumb {
namespace {

constexpr double margin = 24;
constexpr double title_height = 62;
constexpr double font = 10;
constexpr double scale_width = 14;
constexpr double scale_gap = 28;
constexpr double least_map_width = 420;
constexpr int num_scale_steps = 48;
constexpr std::size_t most_cell_titles = 4000;  // cells that say their value when pointed at

bool is_blank(const std::optional<double>& value) { return !value || !std::isfinite(*value) || *value < 0; }

// Falling lightness from nearly white over teal to nearly black; even steps for the eye.
std::string colour(double share) {
  constexpr std::array<std::array<double, 3>, 5> stops = {
      {{0xF4, 0xF8, 0xF7}, {0xA9, 0xD6, 0xD0}, {0x4B, 0xA3, 0xA8}, {0x1F, 0x63, 0x82}, {0x10, 0x22, 0x4A}}};
  const double at = std::clamp(share, 0.0, 1.0) * (stops.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(at), stops.size() - 2);
  const double part = at - static_cast<double>(below);
  std::array<long, 3> mixed{};
  for (std::size_t i = 0; i < 3; ++i) {
    mixed[i] = std::lround(stops[below][i] + (stops[below + 1][i] - stops[below][i]) * part);
  }
  return fmt::format("#{:02x}{:02x}{:02x}", mixed[0], mixed[1], mixed[2]);
}

// Every which label is written, so that none touches the next.
std::size_t label_step(double cell, double needed) { return static_cast<std::size_t>(std::ceil(needed / cell)); }

double widest(const std::vector<std::string>& texts) {
  double width = 0;
  for (const std::string& text : texts) {
    width = std::max(width, text_width(text, font));
  }
  return width;
}

class HeatMapDrawing {
 public:
  explicit HeatMapDrawing(const HeatMap& map)
      : map_(map),
        cell_(std::clamp(640.0 / static_cast<double>(std::max(map.rows.size(), map.columns.size())), 4.0, 26.0)),
        left_(margin + 16 + widest(map.rows) + 6),
        top_(title_height + 16 + widest(map.columns) + 6),
        table_width_(cell_ * static_cast<double>(map.columns.size())),
        table_height_(cell_ * static_cast<double>(map.rows.size())) {
    for (const std::optional<double>& value : map.cells) {
      largest_ = is_blank(value) ? largest_ : std::max(largest_, *value);
    }
  }

  std::string draw() {
    cells();
    labels();
    scale();
    const double words = std::max(text_width(map_.title, 16), text_width(map_.subtitle, 12));
    const double width =
        std::max({least_map_width, left_ + table_width_ + scale_gap + scale_width + 52, words + 2 * margin});
    const double height = top_ + std::max(table_height_, 96.0) + margin;
    return fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" "
        "height=\"{1}\" viewBox=\"0 0 {0} {1}\" font-family=\"system-ui,Helvetica,Arial,sans-serif\" "
        "fill=\"#1f2933\">\n<title>{2}</title>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n"
        "<text x=\"{3}\" y=\"30\" font-size=\"16\" font-weight=\"600\">{2}</text>\n"
        "<text x=\"{3}\" y=\"50\" font-size=\"12\" fill=\"#52606d\">{4}</text>\n{5}</svg>\n",
        px(width), px(height), xml_escaped(map_.title), px(margin), xml_escaped(map_.subtitle), body_);
  }

 private:
  void cells() {
    const bool titles = map_.cells.size() <= most_cell_titles;
    body_ += fmt::format("<g stroke=\"#fff\" stroke-width=\"{}\">\n", cell_ < 8 ? "0" : ".8");
    for (std::size_t row = 0; row < map_.rows.size(); ++row) {
      for (std::size_t column = 0; column < map_.columns.size(); ++column) {
        const std::optional<double>& value = map_.cells[row * map_.columns.size() + column];
        if (is_blank(value)) {
          continue;
        }
        body_ +=
            fmt::format("<rect class=\"c\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"",
                        px(left_ + cell_ * static_cast<double>(column)), px(top_ + cell_ * static_cast<double>(row)),
                        px(cell_), px(cell_), colour(largest_ > 0 ? *value / largest_ : 0));
        if (titles) {
          body_ += fmt::format("><title>{} {}, {} {}: {:.4f}</title></rect>\n", xml_escaped(map_.row_title),
                               xml_escaped(map_.rows[row]), xml_escaped(map_.column_title),
                               xml_escaped(map_.columns[column]), *value);
        } else {
          body_ += "/>\n";
        }
      }
    }
    body_ += "</g>\n";
  }

  void labels() {
    const std::size_t step = label_step(cell_, font + 1);
    body_ += fmt::format("<g font-size=\"{}\" text-anchor=\"end\">\n", px(font));
    for (std::size_t row = 0; row < map_.rows.size(); ++row) {
      if (is_labelled(row, map_.rows.size(), step)) {
        body_ +=
            fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", px(left_ - 6),
                        px(top_ + cell_ * (static_cast<double>(row) + 0.5) + font * 0.36), xml_escaped(map_.rows[row]));
      }
    }
    body_ += "</g>\n";
    body_ += fmt::format("<g font-size=\"{}\">\n", px(font));
    for (std::size_t column = 0; column < map_.columns.size(); ++column) {
      if (is_labelled(column, map_.columns.size(), step)) {
        body_ += fmt::format("<text transform=\"translate({},{}) rotate(-90)\">{}</text>\n",
                             px(left_ + cell_ * (static_cast<double>(column) + 0.5) + font * 0.36), px(top_ - 6),
                             xml_escaped(map_.columns[column]));
      }
    }
    body_ += "</g>\n";
    body_ += fmt::format(
        "<g font-size=\"11\" fill=\"#52606d\">\n<text x=\"{}\" y=\"{}\">{}</text>\n"
        "<text transform=\"translate({},{}) rotate(-90)\" text-anchor=\"end\">{}</text>\n</g>\n",
        px(left_), px(title_height + 8), xml_escaped(map_.column_title), px(margin + 4), px(top_),
        xml_escaped(map_.row_title));
  }

  // Every step-th, and the last, which takes the place of one that would touch it.
  static bool is_labelled(std::size_t index, std::size_t count, std::size_t step) {
    const std::size_t last = count - 1;
    return index == last || (index % step == 0 && last - index >= step);
  }

  void scale() {
    const double x = left_ + table_width_ + scale_gap;
    const double height = std::clamp(table_height_, 96.0, 240.0);
    const double step = height / num_scale_steps;
    for (int i = 0; i < num_scale_steps; ++i) {
      body_ +=
          fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", px(x), px(top_ + step * i),
                      px(scale_width), px(step + 0.3), colour(1 - (i + 0.5) / num_scale_steps));
    }
    body_ += fmt::format(
        "<g font-size=\"{0}\">\n<text x=\"{1}\" y=\"{2}\">{3:.3g}</text>\n"
        "<text x=\"{1}\" y=\"{4}\">0</text>\n</g>\n",
        px(font), px(x + scale_width + 5), px(top_ + font * 0.75), largest_, px(top_ + height));
  }

  const HeatMap& map_;
  double cell_;
  double left_;
  double top_;
  double table_width_;
  double table_height_;
  double largest_ = 0;
  std::string body_;
};

}  // namespace

std::string svg_heat_map(const HeatMap& map) {
  if (map.rows.empty() || map.columns.empty() || map.cells.size() != map.rows.size() * map.columns.size()) {
    throw std::invalid_argument(fmt::format("heat map: {} cells for {} rows and {} columns", map.cells.size(),
                                            map.rows.size(), map.columns.size()));
  }
  return HeatMapDrawing(map).draw();
}

}  // namespace plumb
