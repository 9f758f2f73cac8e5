// SPDX-License-Identifier: Apache-2.0
#include "svg_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace plumb {

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const std::size_t length = lead >= 0xF0 && lead < 0xF5 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
  if (lead >= 0xF5 || length == 0 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what lies beyond U+10FFFF.
  const unsigned char second = byte(at + 1);
  const bool wrong = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0) ||
                     (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second >= 0x90) ||
                     (lead == 0xEF && second == 0xBF && byte(at + 2) >= 0xBE);
  return wrong ? 0 : length;
}

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\t' || c == '\n' || c == '\r') {
      out += ' ';
    } else if (c < 0x20 || c == 0x7F) {
      out += '?';
    } else if (c < 0x80) {
      out += text[i];
    } else if (const std::size_t length = utf8_length(text, i); length > 0) {
      out += text.substr(i, length);
      i += length - 1;
    } else {
      out += '?';
    }
  }
  return out;
}

std::string px(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string time_text(SimTime time, SimTime scale, int significant) {
  const double scale_us = to_us(scale);
  const double unit_us = scale_us >= 1e6 ? 1e6 : scale_us >= 1e3 ? 1e3 : 1;
  const std::string_view unit = scale_us >= 1e6 ? "s" : scale_us >= 1e3 ? "ms" : "\u00b5s";
  const double value = to_us(time) / unit_us;
  const int before_point = value >= 1 ? static_cast<int>(std::log10(value)) + 1 : 0;
  return fmt::format("{:.{}g} {}", value, std::max(significant, before_point), unit);
}

double text_width(std::string_view text, double font_px) { return 0.58 * font_px * static_cast<double>(text.size()); }

std::string shade_of(char operation, int shade, int num_shades) {
  constexpr std::array<std::array<int, 3>, 4> bases = {
      {{0x5A, 0xAE, 0xE0}, {0xE8, 0x9F, 0x26}, {0xC9, 0x7B, 0xA8}, {0x2F, 0xA5, 0x83}}};
  const std::size_t row = operation == 'F' ? 0 : operation == 'B' ? 1 : operation == 'I' ? 2 : 3;
  const double white = num_shades < 2 ? 0.12 : 0.62 * shade / (num_shades - 1);
  std::array<int, 3> mixed{};
  for (std::size_t i = 0; i < 3; ++i)
    mixed[i] = static_cast<int>(std::lround(bases[row][i] + (255 - bases[row][i]) * white));
  return fmt::format("#{:02x}{:02x}{:02x}", mixed[0], mixed[1], mixed[2]);
}

}  // namespace plumb
